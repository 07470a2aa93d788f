"""The API reference: one page per public package, every name of its ``__all__`` with its signature and docstring.

The pages exist in the site alone; mkdocstrings fills them from the source.
"""

from __future__ import annotations

import importlib
import inspect

#: Public packages and modules, in the order of the reference.
PACKAGES = (
    "calibrant", "calibrant.predictions", "calibrant.metrics", "calibrant.posthoc", "calibrant.promises",
    "calibrant.policy", "calibrant.papers",
    "calibrant.monitoring", "calibrant.report", "calibrant.export", "calibrant.losses", "calibrant.targets",
    "calibrant.data", "calibrant.models", "calibrant.training", "calibrant.experiments", "calibrant.torchmetrics",
    "calibrant.sklearn",
)  # fmt: skip


def api_pages() -> dict[str, str]:
    """The Markdown of each page by its path in the site."""
    return {f"api/{name}.md": api_page(name) for name in PACKAGES}


def index_page() -> str:
    """The list of the packages."""
    rows = [f"- [`{name}`]({name}.md): {_summary(name)}" for name in PACKAGES]
    return "\n".join(["# API reference", "", "Every public name, from the source.", "", *rows, ""])


def api_page(name: str) -> str:
    """The page of a package."""
    module = importlib.import_module(name)
    members = [member for member in module.__all__ if not inspect.ismodule(getattr(module, member))]
    return "\n\n".join([f"# `{name}`", _summary(name), *(f"::: {name}.{member}" for member in members)]) + "\n"


def _summary(name: str) -> str:
    """The first paragraph of a package's docstring."""
    return (inspect.getdoc(importlib.import_module(name)) or "").partition("\n\n")[0].replace("\n", " ")
