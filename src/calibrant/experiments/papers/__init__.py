"""Every table and figure of the five papers, by name.

Every name is imported when it is first used: to list the items, nothing heavy is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.base.extras import lazy_names

if TYPE_CHECKING:
    from calibrant.experiments.papers.catalogue import PAGE, PaperItem, find_item, items
    from calibrant.experiments.papers.data_sets import data_of, find_data, parse_folders
    from calibrant.experiments.papers.registry import Output, write_item
    from calibrant.experiments.papers.workbench import SEEDS, RunSet, Workbench

__all__ = ["Output", "PaperItem", "RunSet", "Workbench", "find_item", "items", "write_item"]

_NEEDED = ("train", "torch")
__getattr__, __dir__ = lazy_names(
    __name__, extras={f"calibrant.experiments.papers.{name}": _NEEDED for name in ("registry", "workbench")}
)
