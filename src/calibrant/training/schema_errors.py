"""What pydantic found wrong, as one sentence: which setting, what it must be, what it is."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from calibrant.training.named import shorten

_KINDS = {
    "int_type": "a whole number", "int_from_float": "a whole number", "int_parsing": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "bool_type": "true or false", "string_type": "text",
    "tuple_type": "a list", "list_type": "a list", "dict_type": "a table", "model_type": "a table",
    "model_attributes_type": "a table", "finite_number": "a finite number",
}  # fmt: skip


def first_error(error: ValidationError) -> ErrorDetails:
    """The error that says most: of a setting that is text or a table, the one about what it is."""
    errors = error.errors(include_url=False)
    tables = [e for e in errors if isinstance(e["input"], str) or not any(map(_is_literal, e["loc"]))]
    return (tables or errors)[0]


def name_of(error: ErrorDetails) -> str:
    """The setting, as ``--set`` takes it; what pydantic calls the members of a union is left out."""
    parts = [part for part in error["loc"] if isinstance(part, int) or not _is_inner(part)]
    if "[key]" in error["loc"]:
        parts = parts[:-1]
    return ".".join(map(str, parts))


def sentence_of(error: ErrorDetails) -> str:
    """What is wrong."""
    name, kind = name_of(error), error["type"]
    if kind == "value_error":  # in words of our own
        message = str(error["ctx"]["error"]).rstrip(".")
        return f"{name}: {message}" if name else message
    if kind == "missing":
        return f"the key {name!r} is missing"
    if kind in ("too_long", "too_short"):
        most = "at most" if kind == "too_long" else "at least"
        limit = error["ctx"].get("max_length", error["ctx"].get("min_length"))
        return f"{name} must have {most} {limit} members, got {len(error['input'])}"
    words = _KINDS.get(kind) or error["msg"].removeprefix("Input should be ")
    return f"{name or 'it'} must be {words}, got {shorten(error['input'])}"


def _is_literal(part: Any) -> bool:
    return isinstance(part, str) and part.startswith("literal[")


def _is_inner(part: str) -> bool:
    return part in ("[key]", "constrained-int", "int", "float") or _is_literal(part) or part.endswith("Settings")
