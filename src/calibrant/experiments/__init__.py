"""Comparing methods: sweeps over losses, settings and seeds, and tables of what they give."""

from calibrant.experiments import tables
from calibrant.experiments.comparing import Comparison, Engine, Failure, compare
from calibrant.experiments.demonstration import demonstrate, short_name_legend
from calibrant.experiments.engines import engine_of
from calibrant.experiments.labels import check_reference
from calibrant.experiments.local import Local
from calibrant.experiments.presenting import write
from calibrant.experiments.results import Results, Row
from calibrant.experiments.spaces import losses_to_compare, methods, space
from calibrant.experiments.study import Method, Planned, Study

__all__ = [
    "Comparison", "Engine", "Failure", "Local", "Method", "Planned", "Results", "Row", "Study", "compare", "engine_of",
    "methods", "space", "tables", "write",
]  # fmt: skip
