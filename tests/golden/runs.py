"""Run a case, keep what counts of its outcome, and compare two outcomes by value.

What counts are numbers, flags, names without spaces, and which entries there are. Sentences do not count, so they can
be rewritten; neither do dates, versions and checksums. Long lists of numbers are kept as their count, sum and weighted
sum, and numbers to ten digits. What fits one line of a recorded file stands on one: a difference is one line to read.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from calibrant.cli import main
from calibrant.cli.schema import SCHEMAS
from tests.golden.cases import Case
from tests.golden.inputs import FOLDER

EXPECTED = Path(__file__).parent / "expected"

#: Entries that say when, where or with which version something was made, or that are checksums of such.
PASSING = {
    "added", "calibrant", "checksum", "created", "date", "fingerprint", "fitted", "made", "machine", "memory",
    "model_memory", "onnx", "path", "platform", "python", "seconds", "seconds_per_step", "torch", "version", "written",
}  # fmt: skip
#: Entries that are words for people, even if there is only one word; and those that are lists of sentences.
WORDS = {
    "aside", "description", "headline", "how", "label", "note", "reason", "summary", "text", "title", "verdict", "why",
}  # fmt: skip
SENTENCES = {"assumptions", "conventions", "help", "notes", "remarks", "sentences", "untested"}
#: Numbers that differ by less are equal: exp and log of NumPy differ by an ulp between processors (AVX2, AVX-512), sums
#: by their order, and a bootstrap quantile or a bisected optimum carries that on.
RELATIVE, ABSOLUTE = 1e-6, 1e-9
#: After training: matrix products of PyTorch differ in the last bit between processors, and steps of the optimiser let
#: that grow. A number then counts to within one test sample of some thirty.
TRAINED = 0.05
#: From how many numbers on a list is kept as three.
LONG = 20
#: Of a line of a recorded file.
WIDTH = 250


def run(case: Case, folder: Path) -> dict[str, Any]:
    """Run the commands of a case in a folder; give their exit codes and documents, and the files' contents."""
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    if case.prepare is not None:
        case.prepare(folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        documents = [_call(command, case.entries.get(number)) for number, command in enumerate(case.commands)]
        return {"commands": documents, "files": {name: _contents(Path(name)) for name in case.files}}
    finally:
        os.chdir(before)


def _call(command: str, entries: tuple[str, ...] | None) -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            main([*shlex.split(command), "--json"])
        except SystemExit as stop:
            code = stop.code or 0
    text = out.getvalue()
    name = command.split()[0]
    if text and name in SCHEMAS:
        jsonschema.validate(json.loads(text), SCHEMAS[name], jsonschema.Draft202012Validator)
    document = keep(json.loads(text)) if text else None
    if document is not None and entries is not None:
        document = {name: document[name] for name in entries}
    return {"command": command, "exit": code, "document": document}


def _contents(path: Path) -> Any:
    """A file of decisions or predictions by column, or what an ONNX graph answers."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        if "metric" in head:
            return _means(head, rows)
        return {name: keep([_number(row[k]) for row in rows]) for k, name in enumerate(head)}
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return {name: keep(archive[name].ravel().tolist()) for name in sorted(archive)}
    return {name: keep(np.asarray(values).ravel().tolist()) for name, values in _answers(path).items()}


def _means(head: list[str], rows: list[list[str]]) -> dict[str, float]:
    """Results of runs: the mean of every number over the seeds."""
    names = [head.index(name) for name in ("stage", "tuned_for", "method", "set", "posthoc", "metric")]
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(", ".join(row[k] for k in names if row[k]), []).append(float(row[head.index("value")]))
    return {name: _round(np.mean(numbers)) for name, numbers in values.items()}


def _answers(path: Path) -> dict[str, Any]:
    """The outputs of a graph on the test logits, or on the features if it holds a model."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with np.load("test.npz") as archive:
        values = {"logits": archive["logits"].astype(np.float32), "features": np.load("features.npy")}
    feeds = {value.name: values[value.name] for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return {"true": True, "false": False}.get(text, text)


def keep(value: Any, name: str = "") -> Any:
    """What counts of a value of JSON; None is kept as such, and so is which entries there are."""
    if isinstance(value, dict):
        return {key: keep(entry, key) for key, entry in value.items() if key not in PASSING | SENTENCES}
    if isinstance(value, list):
        return _shorten(value) if len(value) >= LONG else [keep(entry, name) for entry in value]
    if isinstance(value, str):
        is_name = name not in WORDS and re.fullmatch(r"\S{1,60}", value)
        return value if is_name else "..."
    return _round(value) if isinstance(value, float) else value


def _round(number: float) -> float:
    return float(f"{number:.10g}")


def _shorten(values: list[Any]) -> Any:
    """A long list: of numbers their count, sum and sum weighted by position; of others their count and the first."""
    if all(isinstance(value, int | float) for value in values):
        numbers = np.array(values, float)
        numbers = numbers[np.isfinite(numbers)]
        weights = np.cos(np.arange(len(numbers)))  # so that an exchange of two numbers shows
        return {"count": len(values), "sum": _round(numbers.sum()), "weighted": _round(numbers @ weights)}
    return {"count": len(values), "first": [keep(value) for value in values[:5]]}


def compare(expected: Any, actual: Any, *, trained: bool = False, place: str = "") -> Iterator[str]:
    """The differences of two outcomes, each as one line that says where."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            if key not in actual:
                yield f"{place}.{key} is missing"
            elif key not in expected:
                yield f"{place}.{key} is new: {_short(actual[key])}"
            elif not (trained and key == "weighted"):
                yield from compare(expected[key], actual[key], trained=trained, place=f"{place}.{key}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for k, pair in enumerate(zip(expected, actual, strict=True)):
            yield from compare(*pair, trained=trained, place=f"{place}[{k}]")
    elif not _equal(expected, actual, trained):
        yield f"{place}: {_short(expected)} became {_short(actual)}"


def _equal(expected: Any, actual: Any, trained: bool) -> bool:
    numbers = (expected, actual)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
        if trained:
            return math.isclose(expected, actual, rel_tol=TRAINED, abs_tol=TRAINED)
        return math.isclose(expected, actual, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(expected) is type(actual) and expected == actual


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read(name: str) -> Any:
    """The outcome of a case as it was recorded."""
    return json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))


def write(name: str, outcome: Any) -> None:
    """Record the outcome of a case."""
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / f"{name}.json").write_text("\n".join(_lines(outcome)) + "\n", encoding="utf-8")


def _lines(value: Any, indent: str = "", key: str = "") -> Iterator[str]:
    """JSON of a value: on one line where that is short enough or a list of leaves, else an entry a line."""
    opening = indent + (f"{json.dumps(key, ensure_ascii=False)}: " if key else "")
    line = opening + json.dumps(value, ensure_ascii=False)
    has_parts = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict | list) for v in value))
    if len(line) <= WIDTH or not has_parts:
        yield line
        return
    is_dict = isinstance(value, dict)
    yield opening + "[{"[is_dict]
    parts = [list(_lines(value[name] if is_dict else name, f"{indent} ", name if is_dict else "")) for name in value]
    for number, part in enumerate(parts):
        yield from part[:-1]
        yield part[-1] + ("," if number < len(parts) - 1 else "")
    yield indent + "]}"[is_dict]
