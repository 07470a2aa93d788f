"""Comparing methods: sweeps over losses, settings and seeds, and tables of their results.

A comparison passes through these packages in this order:

    plan         what is compared, and the runs that this needs
    engines      what executes the runs: processes of this machine, or a Ray cluster
    results      the numbers of finished runs, as one table in long format
    tables       means, ranks and tests over seeds, as Markdown, LaTeX, CSV, HTML and text
    comparison   all of it in one folder, with a page to open; and the same for detectors

Further packages are ``maps`` (what networks predict pixel by pixel, and where they look), ``demo`` (the demonstration)
and ``papers`` (every table and figure of the papers).
"""

from calibrant.experiments import papers, tables
from calibrant.experiments.comparison.detectors import (
    as_plain,
    check_detectors,
    compare_detectors,
    default_reference,
    detector_tables,
    write_detectors,
)
from calibrant.experiments.comparison.page import write
from calibrant.experiments.comparison.run import Comparison, Failure, compare
from calibrant.experiments.demo.claims import LEGEND as STUDY_LEGEND
from calibrant.experiments.demo.claims import plan_demo_study, read_check, summarise_check, write_demo_study
from calibrant.experiments.demo.demo import run_demo
from calibrant.experiments.engines.local import Engine, Local, engine_of
from calibrant.experiments.maps.activation_study import ChosenImages, study_activation_maps
from calibrant.experiments.maps.image_maps import image_maps, named_runs, split_name
from calibrant.experiments.plan.spaces import losses_to_compare, methods, space
from calibrant.experiments.plan.study import MOST_SEEDS, Contender, Study, contenders_of
from calibrant.experiments.results import Results
from calibrant.experiments.tables.labels import check_reference
from calibrant.experiments.tables.verdict import judge_methods

__all__ = [
    "Comparison", "Contender", "Engine", "Failure", "Local", "Results", "Study", "compare", "engine_of", "methods",
    "papers", "space", "tables", "write",
]  # fmt: skip
