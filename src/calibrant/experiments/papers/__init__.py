"""Every table and figure of the five papers, by name."""

from calibrant.experiments.papers.registry import PAGE, Output, PaperItem, find_item, items, write_item
from calibrant.experiments.papers.workbench import SEEDS, RunSet, Workbench

__all__ = ["Output", "PaperItem", "RunSet", "Workbench", "find_item", "items", "write_item"]
