"""Docstrings as mkdocstrings reads them: a section ``Example:`` is a block of code with its output."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Give the section the name that the reader knows."""

    def on_object(self, *, obj: Object, **options: Any) -> None:
        """Rename it in the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
