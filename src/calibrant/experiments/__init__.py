"""Comparing methods: sweeps over losses, settings and seeds, and tables of what they give."""

from calibrant.experiments import papers, tables
from calibrant.experiments.activation_study import ChosenImages, study_activation_maps
from calibrant.experiments.comparison import Comparison, Failure, compare
from calibrant.experiments.demo import run_demo
from calibrant.experiments.demo_study import LEGEND as STUDY_LEGEND
from calibrant.experiments.demo_study import plan_demo_study, read_check, summarise_check, write_demo_study
from calibrant.experiments.detectors import (
    as_plain,
    check_detectors,
    compare_detectors,
    default_reference,
    detector_tables,
    write_detectors,
)
from calibrant.experiments.labels import check_reference
from calibrant.experiments.local_engine import Engine, Local, engine_of
from calibrant.experiments.maps import image_maps, named_runs
from calibrant.experiments.page import write
from calibrant.experiments.results import Results
from calibrant.experiments.spaces import losses_to_compare, methods, space
from calibrant.experiments.study import Contender, Study, contenders_of
from calibrant.experiments.verdict import judge_methods

__all__ = [
    "Comparison", "Contender", "Engine", "Failure", "Local", "Results", "Study", "compare", "engine_of", "methods",
    "papers", "space", "tables", "write",
]  # fmt: skip
