"""The state of a watch: counts of every batch in the order in which they came, bound to one policy, checked when read.

Counts of batches, arrivals of labels and acknowledgements are only ever appended. What has followed from them so far is
kept beside them (`Running`), so that a look takes in what is new and nothing else; states of several machines merge, as
the batches of the other come after one's own, each once. A file is written aside and renamed: a batch is in it or not,
whenever a process is killed.

**Ids.** A batch with ids keeps a hash of 64 bits of each, so that a sample counts once, in whatever file it comes
again. Two ids that share a hash would be taken for one sample, the second not counted: the chance that this happens to
any of a million ids is below 1 in 10 million. An answer whose label is not known yet keeps its class (and its group) as
well, so that a label which comes later is all that is needed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from calibrant.base.checks import Ints, printable, short, shorten
from calibrant.base.files import read_json, written_aside
from calibrant.policy import Policy

FORMAT, VERSIONS = "calibrant.watch", (1, 2)  # that are read; the last is written
LARGEST = 2**28  # bytes of a file
MOST_COUNTED = 2**53
NOT_WAITING = -1  # of an id: it is no answer, or its label is known
LONGEST_TEXT = 300  # of an acknowledgement
#: How labels that are still missing are written.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)\.0")

Count = Annotated[int, Field(ge=0, le=MOST_COUNTED)]
Share = Annotated[float, Field(ge=0, le=1)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
#: In files of the first version they are lists.
Counts = Annotated[
    str,
    Field(pattern="^[0-9]{1,16}( [0-9]{1,16})*$"),
    BeforeValidator(lambda value: " ".join(map(str, value)) if isinstance(value, list) else value),
]
Hashes = npt.NDArray[np.uint64]


class _StateEntries(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


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
    nll_before: float | None = None
    nll_after: float | None = None
    p_unchanged: Share | None = None
    p_explained: Share | None = None


def encode(array: npt.NDArray[Any]) -> str:
    """An array of numbers as text, with the least byte of each first: one value to read, however many there are."""
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def decode(text: str, kind: str) -> npt.NDArray[Any]:
    """The array of a text; ``kind`` is its type as NumPy spells it."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not an array in base64") from None
    if len(data) % np.dtype(kind).itemsize:
        raise ValueError("an array of another type")
    return np.frombuffer(data, np.dtype(kind).newbyteorder("<")).astype(kind)


def id_text(name: Any) -> str:
    """An id as it is compared over files: 7, "7", " 7" and "7.0", as pandas writes it beside a gap, are the same."""
    text = str(name).strip()
    return text[:-2] if _WHOLE.fullmatch(text) else text


def hash_ids(ids: Iterable[Any]) -> Hashes:
    """64 bits of the BLAKE2b checksum of each id, as `id_text` has it."""
    parts = [hashlib.blake2b(id_text(name).encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in ids]
    return np.frombuffer(b"".join(parts), "<u8").astype(np.uint64)


def decode_hashes(texts: Iterable[str]) -> tuple[Hashes, Ints]:
    """The hashes of several entries, one after the other, and how many each has."""
    try:
        parts = [base64.b64decode(text, validate=True) for text in texts]
    except (binascii.Error, ValueError):
        raise ValueError("not an array in base64") from None
    sizes = np.array([len(part) for part in parts], np.int64)
    if (sizes % 8).any():
        raise ValueError("hashes must have 64 bits each")
    return np.frombuffer(b"".join(parts), "<u8").astype(np.uint64), sizes // 8


class SketchEntry(_StateEntries):
    """Counts in the bins of the policy's reference, as text, which is quicker to read than lists: ``"3 0 12"``."""

    score: Counts
    confidence: Counts
    predicted: Counts

    def counts(self, name: str) -> Ints:
        """Those of the score, the confidence or the predicted class."""
        return np.array(getattr(self, name).split(), np.int64)

    @property
    def sizes(self) -> dict[str, int]:
        """How many bins each has."""
        return {name: 1 + text.count(" ") for name, text in self}


class SeenIds(_StateEntries):
    """The samples of a batch by their ids, in the order of their hashes.

    ``waiting`` is the class that was answered where the label is not known yet, else `NOT_WAITING`, and ``groups`` the
    position of the sample's group in ``names``; both are empty where nothing waits.
    """

    hashes: str
    waiting: str = ""
    groups: str = ""
    names: list[str] = []

    @classmethod
    def of(cls, hashes: Hashes, waiting: Ints, groups: npt.NDArray[np.str_] | None) -> SeenIds:
        """The entry of a batch, whose samples may come in any order."""
        order = np.argsort(hashes)
        entry = cls(hashes=encode(hashes[order]))
        if groups is not None:
            names, numbers = np.unique(groups[order], return_inverse=True)
            entry.names, entry.groups = names.tolist(), encode(numbers.astype(np.int32))
        entry.set_waiting(waiting[order])
        return entry

    def set_waiting(self, waiting: Ints) -> None:
        """Change what waits; where nothing does, its arrays go."""
        if (waiting == NOT_WAITING).all():
            self.waiting, self.groups, self.names = "", "", []
        else:
            self.waiting = encode(waiting.astype(np.int32))

    def hash_array(self) -> Hashes:
        """The hashes, which rise."""
        return decode(self.hashes, "u8")

    def waiting_array(self) -> Ints:
        """What waits, for every hash."""
        if not self.waiting:
            return np.full(len(self.hash_array()), NOT_WAITING, np.int64)
        return decode(self.waiting, "i4").astype(np.int64)

    def group_array(self) -> npt.NDArray[np.str_] | None:
        """The group of every sample, where there are groups and something waits."""
        return np.array(self.names, np.str_)[decode(self.groups, "i4")] if self.groups else None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.waiting and not self.groups:
            return self  # the hashes are checked with those of all batches
        for text in filter(None, (self.waiting, self.groups)):
            if len(decode(text, "i4")) != len(self.hash_array()):
                raise ValueError("there must be an entry for every id")
        groups = decode(self.groups, "i4")
        if len(groups) and not 0 <= groups.min() <= groups.max() < len(self.names):
            raise ValueError("groups must be positions of names")
        if self.waiting and self.waiting_array().min() < NOT_WAITING:
            raise ValueError("what waits must be a class")
        return self


class WatchedBatch(_StateEntries):
    """A batch: what is counted of the samples that came with it for the first time.

    ``fingerprint`` names it, ``looks`` is the checksum of the values of a batch without ids, by which it is known again
    under its name.
    """

    name: str
    fingerprint: Digest
    looks: Digest | None = None
    added: str
    samples: Count
    accepted: Count
    implied_errors: Annotated[float, Field(ge=0, le=MOST_COUNTED)]
    sketch: SketchEntry | None = None
    shift: ShiftEntry | None = None  # of the last batch that has one
    labels_only: bool = False
    ids: SeenIds | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.accepted > self.samples or self.implied_errors > self.accepted * (1 + 1e-9):
            raise ValueError("implied_errors, accepted and samples must not fall")
        return self


class TestName(_StateEntries):
    """Which test: its name, and the group that it is about, or an empty text."""

    __test__ = False  # of pytest's

    name: str
    group: str = ""


class Acknowledgement(_StateEntries):
    """Alarms that somebody has seen, after so many batches and arrivals of labels; their tests started anew."""

    text: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
    date: str
    batches: Count
    labels: Count
    tests: list[TestName]


def _numbers(kind: str) -> tuple[BeforeValidator, PlainSerializer]:
    """How a list of numbers is read from a text and written as one."""

    def read(value: Any) -> Any:
        return decode(value, kind).tolist() if isinstance(value, str) else value

    return BeforeValidator(read), PlainSerializer(lambda value: encode(np.array(value, kind)), when_used="json")


Positions = Annotated[list[Count], *_numbers("i4")]
Numbers = Annotated[list[float], *_numbers("f8")]


class RunningTest(_StateEntries):
    """How far a test has come.

    ``first_batch`` is the position of the first batch that came since the last of ``restarts``, and ``looks``,
    ``log_sums`` (of each of its processes) and ``pool`` are those of `EvidenceProcess` and `rank_cells`
    since then; ``since`` is the look whose evidence raised the alarm. Of every look ever taken
    there is ``at``, the batch (or arrival of labels) that it was, and log10 of the ``evidence`` after it.
    """

    restarts: Count = 0
    first_batch: Count = 0
    looks: Count = 0
    log_sums: list[list[float]] = []
    pool: list[Count] = []
    since: Count | None = None
    at: Positions = []
    evidence: Numbers = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.evidence) not in (0, len(self.at)) or (self.since is not None and self.since >= len(self.evidence)):
            raise ValueError("there must be an entry for every look")
        return self

    def restart(self, first_batch: int) -> None:
        """Begin anew, with the batches from this position on."""
        self.first_batch = first_batch
        self.restarts, self.looks, self.log_sums, self.pool, self.since = self.restarts + 1, 0, [], [], None


class RunningRate(RunningTest):
    """The same of a rate of errors: counts since the last restart, and after every arrival the rate and its limits."""

    errors: Count = 0
    answers: Count = 0
    cost: Annotated[float, Field(ge=0, le=MOST_COUNTED)] = 0.0
    value: Numbers = []
    low: Numbers = []
    high: Numbers = []

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if {len(self.value), len(self.low), len(self.high)} != {len(self.at)}:
            raise ValueError("there must be limits for every arrival")
        return self

    def restart(self, first_batch: int) -> None:
        """Begin anew, with the batches from this position on."""
        super().restart(first_batch)
        self.errors, self.answers, self.cost = 0, 0, 0.0


class Running(_StateEntries):
    """What follows from the first so many batches, arrivals of labels and acknowledgements."""

    batches: Count = 0
    labels: Count = 0
    acknowledgements: Count = 0
    overall: RunningRate = Field(default_factory=RunningRate)  # of all answers
    groups: dict[str, RunningRate] = {}  # in the order in which they came
    changes: dict[str, RunningTest] = {}


class WatchState(_StateEntries):
    """All of a watch; see the module."""

    format: Literal["calibrant.watch"] = "calibrant.watch"
    version: Literal[2] = 2
    policy: Digest
    by_group: str | None = None
    alpha: Annotated[float, Field(gt=0, lt=1)]
    batches: list[WatchedBatch] = []
    labels: list[LabelArrival] = []
    acknowledgements: list[Acknowledgement] = []
    running: Running = Field(default_factory=Running)

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [batch.fingerprint for batch in self.batches]
        if len(set(names)) < len(names):
            raise ValueError("a batch appears twice")
        self._check_ids()
        accepted = {batch.fingerprint: batch.accepted for batch in self.batches}
        for arrival in self.labels:
            accepted[arrival.batch] = accepted.get(arrival.batch, -1) - arrival.answers
            if accepted[arrival.batch] < 0:
                raise ValueError("labels of a batch must be of its answers, each once")
        running = self.running
        for part, counted in (("batches", self.batches), ("labels", self.labels)):
            ends = [*(getattr(item, part) for item in self.acknowledgements), len(counted)]
            if any(a > b for a, b in itertools.pairwise(ends)) or getattr(running, part) > len(counted):
                raise ValueError(f"acknowledgements and running evidence must follow the {part}")
        if running.acknowledgements > len(self.acknowledgements):
            raise ValueError("running evidence must follow the acknowledgements")
        rates = [running.overall, *running.groups.values()]
        for tests, end in ((rates, running.labels), ([*running.changes.values()], running.batches)):
            if any(number >= end for test in tests for number in test.at):
                raise ValueError("running evidence must be of batches that are there")
        return self

    def _check_ids(self) -> None:
        with_ids = [batch for batch in self.batches if batch.ids is not None]
        hashes, sizes = decode_hashes(batch.ids.hashes for batch in with_ids if batch.ids is not None)
        if sizes.tolist() != [batch.samples for batch in with_ids]:
            raise ValueError("ids of a batch must be those of all its samples")
        owners = np.repeat(np.arange(len(sizes)), sizes)
        if ((hashes[1:] <= hashes[:-1]) & (owners[1:] == owners[:-1])).any():
            raise ValueError("hashes of ids must rise")
        hashes.sort()
        if (hashes[1:] == hashes[:-1]).any():
            raise ValueError("an id appears in two batches")

    def seen_hashes(self) -> Hashes:
        """The hashes of all ids, in rising order."""
        hashes, _ = decode_hashes(batch.ids.hashes for batch in self.batches if batch.ids is not None)
        hashes.sort()
        return hashes

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
    entries = policy.document
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
    """A state out of plain data, checked; one of an earlier version becomes one of this."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not the state of a watch: expected an object with format {FORMAT!r}")
    version = data.get("version")
    if version not in VERSIONS or isinstance(version, bool):
        versions = " and ".join(map(str, VERSIONS))
        raise ValueError(f"states of version {versions} are read, got version {str(version)[:40]}")
    content = {name: value for name, value in data.items() if name != "checksum"}
    try:
        state = WatchState.model_validate(content | {"version": VERSIONS[-1]})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        entry = ".".join(str(part)[:40] for part in first["loc"])
        raise ValueError(printable(f"{entry or 'the state'}: {first['msg'].removeprefix('Value error, ')}")) from None
    if data.get("checksum") != _checksum(_text(content, sort_keys=version == 1)):
        raise ValueError("the checksum is of other contents: the file is damaged, or was edited")
    if version == 1:  # its batches are known again by their values and ids together
        for batch in state.batches:
            batch.looks = batch.fingerprint
    return state


def _text(entries: dict[str, Any], *, sort_keys: bool = False) -> str:
    return json.dumps(entries, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)


def _checksum(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def write_state(state: WatchState, path: str | Path) -> None:
    """Write a state, aside and then renamed."""
    text = _text(state.model_dump(mode="json", exclude_none=True))
    text = f'{text[:-1]},"checksum":"{_checksum(text)}"}}\n'
    if len(text) > LARGEST:
        raise ValueError(
            f"{path}: a state may take {LARGEST:,} bytes, this would take {len(text):,}: begin another one"
        )
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
    """The class of every id, out of a table with columns id and label: positions of classes or their names.

    Tables are .csv, .tsv, .jsonl or .parquet; ids are text, whatever they look like.
    """
    from calibrant.predictions.side_table import read_text_columns

    numbers = {name: number for number, name in enumerate(class_names or ())}
    if not any(name.isdecimal() for name in numbers):  # else a number is a name, and never a position
        numbers |= {str(number): number for number in range(classes)}
    classes_by_id: dict[str, int] = {}
    for ids, labels in read_text_columns(path, (("id", "ids"), ("label", "labels"))):
        for name, label in zip(ids, labels, strict=True):
            number = numbers.get(label or "")
            if number is None and label is not None and label.endswith((".0", ".00")):  # a whole number with a point
                number = numbers.get(label.partition(".")[0])
            if number is None and (label is None or label.strip() in MISSING):
                continue  # a label that is still missing
            if number is None:
                raise ValueError(f"{path}: the label {short(label)} is none of {classes} classes")
            if name is None or not name.strip():
                raise ValueError(f"{path}: a row with the label {short(label)} has no id")
            if classes_by_id.setdefault(id_text(name), number) != number:
                raise ValueError(f"{path}: the id {shorten(name)} has two labels")
    if not classes_by_id:
        raise ValueError(f"{path}: there are no labels")
    return classes_by_id
