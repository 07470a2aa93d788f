"""Every table and figure of the five papers, by name."""

from calibrant.experiments.papers.registry import Output, PaperItem, find_item, items
from calibrant.experiments.papers.workbench import SEEDS, RunSet, Workbench
from calibrant.experiments.papers.writing import PAGE, write_item

__all__ = ["Output", "PaperItem", "RunSet", "Workbench", "find_item", "items", "write_item"]
