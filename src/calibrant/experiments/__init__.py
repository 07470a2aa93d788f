"""Comparing methods: sweeps over losses, settings and seeds, and tables of their results.

A comparison passes through these modules in this order:

    spaces, study          what is compared, the values to search, and the runs that this needs
    engines, ray_engine    what executes the runs: processes of this machine, or a Ray cluster
    evaluation, results    the numbers of finished runs, as one table in long format
    tables                 means, ranks and tests over seeds, as Markdown, LaTeX, CSV, HTML and text
    comparison             all of it in one folder; comparison_page has the page to open, detectors those of detectors

Further modules are ``pixel_maps`` (what networks predict pixel by pixel), ``activation_maps`` (where they look),
``demo`` and ``demo_claims`` (the demonstration, and the study of what the papers claim) and ``papers`` (every table and
figure of the papers). Every name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.base.extras import lazy_names

if TYPE_CHECKING:
    from calibrant.experiments import papers, tables
    from calibrant.experiments.activation_maps import ChosenImages, study_activation_maps
    from calibrant.experiments.comparison import Comparison, Failure, compare
    from calibrant.experiments.comparison_page import write
    from calibrant.experiments.demo import run_demo
    from calibrant.experiments.demo_claims import (
        STUDY_LEGEND,
        plan_demo_study,
        read_check,
        summarise_check,
        write_demo_study,
    )
    from calibrant.experiments.detectors import (
        as_plain,
        check_detectors,
        compare_detectors,
        default_reference,
        detector_tables,
        write_detectors,
    )
    from calibrant.experiments.engines import Engine, Local, engine_of
    from calibrant.experiments.pixel_maps import image_maps, named_runs, split_name
    from calibrant.experiments.results import Results
    from calibrant.experiments.spaces import losses_to_compare, methods, short_title, space
    from calibrant.experiments.study import MOST_SEEDS, Contender, Study, contenders_of
    from calibrant.experiments.tables.labels import check_reference
    from calibrant.experiments.tables.verdict import judge_methods

__all__ = [
    "Comparison", "Contender", "Engine", "Failure", "Local", "Results", "Study", "compare", "engine_of", "methods",
    "papers", "space", "tables", "write",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__, extras={"calibrant.experiments.": ("train", "torch")})
