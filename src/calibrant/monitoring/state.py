"""The state of a watch: counts of every batch in the order in which they came, bound to one policy, checked when read.

Evidence is computed from the counts, so that states of several machines merge: the batches of the other come after
one's own, each once. A file is written aside and renamed: a batch is in it or not, whenever a process is killed. Labels
that come later are read from a table of ids and labels.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from calibrant._files import open_regular, read_json, written_aside
from calibrant._validation import listing, printable, short
from calibrant.selective import Policy

FORMAT, VERSION = "calibrant.watch", 1
LARGEST = 2**28  # bytes of a file
MOST_COUNTED = 2**53
IDS, LABELS = ("id", "ids"), ("label", "labels")  # columns of labels that come later

Count = Annotated[int, Field(ge=0, le=MOST_COUNTED)]
Share = Annotated[float, Field(ge=0, le=1)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class _StateEntries(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class KnownLabels(_StateEntries):
    """Answers whose labels became known at one time, and how many of them are wrong."""

    answers: Count
    errors: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.errors > self.answers:
            raise ValueError("errors must be at most answers")
        return self


class LabelArrival(KnownLabels):
    """Labels of a batch, in all and by group; where costs are promised, the sum of the answers' over the highest."""

    batch: Digest
    groups: dict[str, KnownLabels] = {}
    cost: Annotated[float, Field(ge=0, le=MOST_COUNTED)] = 0.0

    @model_validator(mode="after")
    def _check_cost(self) -> Self:
        if self.cost > self.answers * (1 + 1e-9):
            raise ValueError("cost must be at most answers")
        return self

    @model_serializer(mode="wrap")
    def _without_cost(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Files of policies that promise no cost do not have it."""
        entries: dict[str, Any] = handler(self)
        return entries if self.cost else {name: value for name, value in entries.items() if name != "cost"}


class ShiftEntry(_StateEntries):
    """What EM said about the priors of a batch; see `LabelShift`."""

    priors: list[Share]
    samples: Count
    gain: Annotated[float, Field(ge=0)]
    p_value: Share
    nll_before: float | None
    nll_after: float | None


class SketchEntry(_StateEntries):
    """Counts in the bins of the policy's reference."""

    score: list[Count]
    confidence: list[Count]
    predicted: list[Count]


class WatchedBatch(_StateEntries):
    """A batch."""

    name: str
    fingerprint: Digest
    added: str
    samples: Count
    accepted: Count
    implied_errors: Annotated[float, Field(ge=0, le=MOST_COUNTED)]
    sketch: SketchEntry | None
    shift: ShiftEntry | None
    labels_only: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.accepted > self.samples or self.implied_errors > self.accepted * (1 + 1e-9):
            raise ValueError("implied_errors, accepted and samples must not fall")
        if self.sketch is not None and {sum(counts) for _, counts in self.sketch} != {self.samples}:
            raise ValueError("a sketch must count all samples")
        return self


class WatchState(_StateEntries):
    """All of a watch; see the module."""

    format: Literal["calibrant.watch"] = "calibrant.watch"
    version: Literal[1] = 1
    policy: Digest
    by_group: str | None
    alpha: Annotated[float, Field(gt=0, lt=1)]
    batches: list[WatchedBatch] = []
    labels: list[LabelArrival] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [batch.fingerprint for batch in self.batches]
        if len(set(names)) < len(names):
            raise ValueError("a batch appears twice")
        accepted = {batch.fingerprint: batch.accepted for batch in self.batches}
        for arrival in self.labels:
            accepted[arrival.batch] = accepted.get(arrival.batch, -1) - arrival.answers
            if accepted[arrival.batch] < 0:
                raise ValueError("labels of a batch must be of its answers, each once")
        return self

    def of_batch(self, fingerprint: str) -> WatchedBatch | None:
        """The batch with this fingerprint, or None."""
        return next((batch for batch in self.batches if batch.fingerprint == fingerprint), None)

    def known_labels(self, fingerprint: str) -> LabelArrival:
        """All labels of a batch that are known, added up."""
        return sum_labels(fingerprint, [arrival for arrival in self.labels if arrival.batch == fingerprint])

    def labels_by_batch(self) -> dict[str, LabelArrival]:
        """The same of every batch that has any."""
        arrivals: dict[str, list[LabelArrival]] = {}
        for arrival in self.labels:
            arrivals.setdefault(arrival.batch, []).append(arrival)
        return {name: sum_labels(name, parts) for name, parts in arrivals.items()}


def sum_labels(fingerprint: str, arrivals: list[LabelArrival]) -> LabelArrival:
    """Several arrivals of labels of a batch as one."""
    names = dict.fromkeys(name for arrival in arrivals for name in arrival.groups)
    groups = {}
    for name in names:
        parts = [arrival.groups[name] for arrival in arrivals if name in arrival.groups]
        groups[name] = KnownLabels(answers=sum(p.answers for p in parts), errors=sum(p.errors for p in parts))
    totals = {name: sum(getattr(arrival, name) for arrival in arrivals) for name in ("answers", "errors", "cost")}
    return LabelArrival(batch=fingerprint, groups=groups, **totals)


def find_new_labels(before: LabelArrival, now: LabelArrival) -> LabelArrival | None:
    """The labels that are known now and were not before; None if those from before have changed or are gone."""
    pairs: list[tuple[KnownLabels, KnownLabels]] = [(before, now)]
    nothing = KnownLabels(answers=0, errors=0)
    names = dict.fromkeys([*before.groups, *now.groups])
    pairs += [(before.groups.get(name, nothing), now.groups.get(name, nothing)) for name in names]
    changes = [(b.answers - a.answers, b.errors - a.errors) for a, b in pairs]
    cost = now.cost - before.cost
    is_rounding = abs(cost) <= 1e-9 * max(1.0, now.cost)  # of sums in another order
    if any(errors < 0 or errors > answers for answers, errors in changes):
        return None
    if not is_rounding and not 0 <= cost <= changes[0][0] * (1 + 1e-9):
        return None
    groups = {
        name: KnownLabels(answers=answers, errors=errors)
        for name, (answers, errors) in zip(names, changes[1:], strict=True)
        if answers
    }
    answers, errors = changes[0]
    cost = min(max(0.0, cost), float(answers))
    return LabelArrival(batch=now.batch, answers=answers, errors=errors, groups=groups, cost=cost)


def policy_fingerprint(policy: Policy) -> str:
    """A checksum of what decides and of what is promised; the same after the file was written by another version."""
    from calibrant.selective import to_dict

    entries = to_dict(policy)
    names = ("takes", "kind", "classes", "class_names", "target_risk", "confidence", "calibrator", "score", "group")
    promised = {name: entries[name] for name in names}
    promised["threshold"] = entries["threshold"]["accept_from"]
    promised["groups"] = entries["groups"] and {name: part["accept_from"] for name, part in entries["groups"].items()}
    # Not of every policy, so that the checksum of others stays what it was.
    if "promise" in entries:
        promised["promise"] = {name: value for name, value in entries["promise"].items() if name != "seen"}
    if "class_thresholds" in entries:
        promised["class_thresholds"] = [
            [part["class"], part["group"], part["threshold"]["accept_from"]] for part in entries["class_thresholds"]
        ]
    promised["reference"] = entries["evidence"].get("reference")
    text = json.dumps(promised, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def read_state(path: str | Path) -> WatchState:
    """Read a state; whatever is wrong with the file is a ValueError that names it and the entry."""
    data = read_json(path, LARGEST, "the state of a watch")
    try:
        return parse_state(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse_state(data: Any) -> WatchState:
    """A state out of plain data, checked."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not the state of a watch: expected an object with format {FORMAT!r}")
    if data.get("version") != VERSION or isinstance(data["version"], bool):
        raise ValueError(f"states of version {VERSION} are read, got version {str(data.get('version'))[:40]}")
    content = {name: value for name, value in data.items() if name != "checksum"}
    try:
        state = WatchState.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        entry = ".".join(str(part)[:40] for part in first["loc"])
        raise ValueError(printable(f"{entry or 'the state'}: {first['msg'].removeprefix('Value error, ')}")) from None
    if data.get("checksum") != _checksum(content):
        raise ValueError("the checksum is of other contents: the file is damaged, or was edited")
    return state


def _checksum(entries: dict[str, Any]) -> str:
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def write_state(state: WatchState, path: str | Path) -> None:
    """Write a state, aside and then renamed."""
    entries = state.model_dump(mode="json")
    text = json.dumps(entries | {"checksum": _checksum(entries)}, indent=1, allow_nan=False) + "\n"
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def lock_folder(path: str | Path) -> Iterator[None]:
    """Let no other process change the states of this folder meanwhile; the lock ends with the process."""
    folder = Path(path).resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_labels(path: str | Path, classes: int, class_names: Sequence[str] | None) -> dict[str, int]:
    """The class of every id, out of .csv or .parquet: columns id and label, positions of classes or their names."""
    import pyarrow as pa

    try:
        table = _read_table(Path(path))
    except pa.ArrowException as error:
        raise ValueError(f"{path}: not a table of labels ({str(error).splitlines()[0]})") from None
    ids, labels = (_read_column(path, table, names) for names in (IDS, LABELS))
    numbers = {name: number for number, name in enumerate(class_names or ())}
    numbers |= {str(number): number for number in range(classes) if str(number) not in numbers and class_names is None}
    classes_by_id: dict[str, int] = {}
    for name, label in zip(ids, labels, strict=True):
        if name is None or label is None:
            continue  # a label that is still missing
        number = numbers.get(str(label), label if isinstance(label, int) and 0 <= label < classes else None)
        if number is None:
            raise ValueError(f"{path}: the label {short(label)} is none of {classes} classes")
        if classes_by_id.setdefault(str(name), number) != number:
            raise ValueError(f"{path}: the id {short(name)} has two labels")
    if not classes_by_id:
        raise ValueError(f"{path}: there are no labels")
    return classes_by_id


def _read_table(path: Path) -> Any:
    import pyarrow.csv
    import pyarrow.parquet

    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path}: labels are read from .csv or .parquet, got {suffix!r}")
    with open_regular(path) as file:
        if suffix == ".csv":
            return pyarrow.csv.read_csv(file, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True))
        return pyarrow.parquet.read_table(file)


def _read_column(path: str | Path, table: Any, names: tuple[str, ...]) -> list[Any]:
    matches = [name for name in table.column_names if name in names]
    if len(matches) != 1:
        raise ValueError(f"{path}: expected a column {names[0]!r}, got {listing(table.column_names, 5)}")
    return table.column(matches[0]).to_pylist()
