"""The check before anything is written: onnxruntime's answers against the policy's own, row by row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.base.arrays import Array, Doubles, Precision, as_numpy, class_rows, is_half, precision_of
from calibrant.base.checks import Bools, listing
from calibrant.base.numbers import count, significant
from calibrant.export.graph import GROUP, OUTPUTS, SET, add_logits_output
from calibrant.export.onnx_model import Feeds, Runner, make_runner
from calibrant.policy import Decision, Policy, decision_formula
from calibrant.posthoc import NumpyOps, softmax

if TYPE_CHECKING:
    from onnx import ModelProto

    from calibrant.export.expected import ExpectedCheck

CLOSE = 1e-5  # of probabilities, and of logits relative to the largest of their row
HALF_CLOSE = {"float16": 2.0**-7, "bfloat16": 2.0**-4}  # eight roundings: a network adds a few up
MOST_PROBED = 50  # thresholds of classes
ROUNDING = 1e-12  # of float64 formulas that sum in another order


@dataclass(frozen=True)
class Agreement:
    """What a graph was checked against, and in how many of how many rows it differs.

    Attributes:
        against: ``"policy"``, ``"label output"`` or ``"expected"``.
        rows: how many rows were compared.
        differing: in how many of them something differs.
        text: the same in a sentence.
    """

    against: str
    rows: int
    differing: int
    text: str


@dataclass(frozen=True)
class CheckBatch:
    """What goes into a batch, and what becomes of it before the policy."""

    feeds: Feeds  # the inputs by name
    group: Array | None  # [N], if the policy has groups
    logits: Array  # what onnxruntime makes of the inputs
    reference: Any  # the logits whose answers the graph must give: PyTorch's, if the model is PyTorch's
    own: Array | None = None  # the model's own labels, if it gives them
    start: int = 0  # the number of the first row among all inputs
    repeats: bool = False  # whether the rows are in other batches as well


def verify(
    policy: Policy, model: ModelProto, batches: Sequence[CheckBatch], expected: ExpectedCheck | None = None
) -> Verification:
    """Compare a graph's answers with the policy's; ``expected`` takes in the answers too."""
    run, verification = make_runner(model, "the extended graph"), Verification(policy)

    @functools.cache
    def logits_runner() -> Runner:
        return make_runner(add_logits_output(model), "the extended graph")

    def graph_logits(feeds: Feeds) -> Array:
        return logits_runner()(feeds)[-1]

    for batch in batches:
        feeds = batch.feeds if batch.group is None else {**batch.feeds, GROUP: batch.group}
        outputs = run(feeds)
        verification.add(outputs, batch.reference, batch.group, functools.partial(graph_logits, feeds))
        if expected is not None and not batch.repeats:
            expected.add(AnswerRows.of_graph(outputs), batch.start, len(batch.logits), batch.group)
    return verification


@dataclass(frozen=True)
class AnswerRows:
    """Answers ``[n]``, probabilities ``[n, C]``: each position of a segmentation is a row.

    ``members`` are the prediction sets ``[n, C]``, where the policy has them.
    """

    label: Array
    confidence: Array
    accept: Array
    probabilities: Array
    members: Array | None = None

    @classmethod
    def of_graph(cls, outputs: Sequence[Any]) -> AnswerRows:
        """Of what a graph gives, in the order of `OUTPUTS`, with the sets after them."""
        label, confidence, accept, probabilities, *sets = map(np.asarray, outputs)
        flat = label.reshape(-1), confidence.reshape(-1), accept.reshape(-1)
        return cls(*flat, class_rows(probabilities), *sets)

    @classmethod
    def of_policy(cls, policy: Policy, logits: Array, group: Array | None) -> AnswerRows:
        """Of the policy itself to logits, in their precision or float32 for half of it."""
        answers = decide(policy, logits, group)
        precision = np.float64 if logits.dtype == np.float64 else np.float32
        confidence, probabilities = answers.confidence[:, 0].astype(precision), answers.probabilities.astype(precision)
        members = None
        if policy.sets is not None:
            with np.errstate(all="ignore"):
                members = policy.sets.members(NumpyOps(), answers.probabilities)
        return cls(answers.label[:, 0], confidence, answers.accept[:, 0], probabilities, members)

    def compare(self, other: AnswerRows) -> tuple[Bools, Doubles]:
        """Which rows differ from another's, and by how much the probabilities do."""
        gap = np.maximum(_gap(self.probabilities, other.probabilities).max(1), _gap(self.confidence, other.confidence))
        # Where logits are NaN, there is no largest either.
        label = (self.label != other.label) & ~np.isnan(self.confidence)
        off = label | (self.accept != other.accept) | ~(gap <= CLOSE)
        if self.members is not None and other.members is not None:
            off |= (self.members != other.members).any(1)
        return off, gap


def decide(policy: Policy, logits: Array, group: Array | None) -> Decision[Any]:
    """The policy's decisions by its formula, a row for each position; ``group`` has a number for each of the logits."""
    rows = class_rows(logits.astype(np.float64))
    numbers = None if group is None else np.repeat(group.astype(np.float64), len(rows) // len(logits))[:, None]
    with np.errstate(all="ignore"):  # logits that are not finite are given on purpose
        return decision_formula(policy, NumpyOps(), rows, numbers)


def _gap(a: Array, b: Array) -> Doubles:
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))


class Verification:
    """Batches of a graph's answers against the policy's own, added up.

    Undecided rows differ by no more than rounding explains: their probabilities by up to ``blur``, those of the others
    by up to ``difference``.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rows = self.accepted = self.undecided = self.wrong = 0
        self.difference, self.blur, self.first_error = 0.0, 0.0, ""

    def add(self, graph: Sequence[Array], logits: Any, group: Array | None, graph_logits: Callable[[], Array]) -> None:
        """Compare the graph's answers to a batch with the policy's to its logits, which are of any framework.

        ``graph_logits`` gives the graph's own logits in float64, which may differ by rounding.
        """
        reference = as_numpy("logits", logits)[0]
        answers, expected = AnswerRows.of_graph(graph), AnswerRows.of_policy(self.policy, reference, group)
        off, gap = answers.compare(expected)
        if off.any():
            excused = off & self._is_rounding(graph_logits(), reference, precision_of(logits), answers, group)
            self.undecided += int(excused.sum())
            self.blur = max(self.blur, float(np.where(excused, gap, 0.0).max()))
            gap = np.where(excused, 0.0, gap)
            off &= ~excused
        if off.any() and not self.wrong:
            self.first_error = _describe(answers, expected, int(np.argmax(off)), self.rows)
        self.wrong += int(off.sum())
        self.rows += len(off)
        self.accepted += int(answers.accept.sum())
        worst = float(gap.max())
        self.difference = worst if np.isnan(worst) else max(self.difference, worst)

    def agreement(self) -> Agreement:
        """In how many rows the answers differ by rounding; raises if the graph was wrong anywhere."""
        if self.wrong:
            raise ValueError(
                f"the graph does not do what the policy does in {self.wrong} of {self.rows} rows, so nothing was "
                f"written: {self.first_error}; the largest difference of probabilities is {self.difference:.3g}"
            )
        accepted = f", {count(self.accepted)} of them accepted" if self.accepted else ""
        text = (
            f"given the same {self.policy.takes}, onnxruntime answers as the policy does in {count(self.rows)} "
            f"rows{accepted}; probabilities differ by at most {significant(self.difference, 1)}"
        )
        return Agreement("policy", self.rows, self.undecided, text)

    def _is_rounding(
        self, logits: Array, reference: Array, precision: Precision, answers: AnswerRows, group: Array | None
    ) -> Bools:
        """Rows whose logits equal the reference but for rounding, and whose answer in the graph is right for them."""
        a, b = (class_rows(z.astype(np.float64)) for z in (logits, reference))
        close = HALF_CLOSE[precision] if is_half(precision) else CLOSE
        is_close = _gap(a, b).max(1) <= close * np.maximum(1.0, np.abs(b).max(1))
        off, _ = answers.compare(AnswerRows.of_policy(self.policy, logits, group))
        return is_close & (~off | self._is_blurred(logits, answers, group))

    def _is_blurred(self, z: Array, answers: AnswerRows, group: Array | None) -> Bools:
        """Rows whose answer, by the policy itself, becomes the graph's when logits move by float64's rounding.

        Where a score is all but constant, moving the logits does not move it: there, rows count whose score meets the
        threshold but for rounding.
        """
        rng = np.random.default_rng(0)
        tied = self._is_tied(z, group)
        blurred = np.zeros(len(answers.label), dtype=bool)
        for _ in range(16):
            noisy = z.astype(np.float64) * (1 + ROUNDING * rng.standard_normal(z.shape))
            moved = AnswerRows.of_policy(self.policy, noisy, group)
            blurred |= ~answers.compare(replace(moved, accept=np.where(tied, answers.accept, moved.accept)))[0]
        return blurred

    def _is_tied(self, z: Array, group: Array | None) -> Bools:
        """Rows whose score is the threshold but for rounding."""
        answers = decide(self.policy, z, group)
        score, limit = answers.score[:, 0], np.broadcast_to(answers.limit, answers.score.shape)[:, 0]
        scale = ROUNDING * np.maximum(1.0, np.abs(np.where(np.isfinite(limit), limit, 0.0)))
        return _gap(score, limit) <= scale


def _describe(answers: AnswerRows, expected: AnswerRows, row: int, before: int) -> str:
    parts = []
    for name in OUTPUTS[:3]:
        a, b = getattr(answers, name)[row].item(), getattr(expected, name)[row].item()
        parts.append(f"{name} {a:.7g} instead of {b:.7g}" if isinstance(a, float) else f"{name} {a} instead of {b}")
    if answers.members is not None and expected.members is not None:
        a, b = (np.flatnonzero(members[row]).tolist() for members in (answers.members, expected.members))
        parts.append(f"{SET} {listing(a)} instead of {listing(b)}")
    return f"row {before + row} has " + ", ".join(parts)


# ---------------------------------------------------------------------- logits that probe a policy


def make_probing_batches(policy: Policy) -> list[CheckBatch]:
    """Rows of every kind, as images for segmentation; and the first row alone."""
    rows, group = _probing_rows(policy)
    if policy.kind == "segmentation":
        # One group for an image: rows that share one lie together.
        order = np.argsort(group, kind="stable")
        rows, group = rows[order], group[order]
        pieces = [np.flatnonzero(group == number) for number in np.unique(group)]
        pixels = np.concatenate([np.resize(piece, (-(-len(piece) // 6), 6)) for piece in pieces])
        rows, group = rows[pixels].reshape(-1, 2, 3, rows.shape[1]).transpose(0, 3, 1, 2), group[pixels[:, 0]]
    name = "logits" if policy.takes == "logits" else "model_probabilities"
    rows = np.ascontiguousarray(rows)
    return [
        CheckBatch({name: rows[part]}, None if policy.group_names is None else group[part], rows[part], rows[part])
        for part in (slice(None), slice(0, 1))
    ]


def _probing_rows(policy: Policy) -> tuple[Array, Array]:
    """Logits of all scales, saturated, tied, and on both sides of every threshold; and groups."""
    rng = np.random.default_rng(0)
    classes, limits = policy.num_classes, policy.limits
    scales = [rng.standard_normal((16, classes)) * scale for scale in (0.01, 0.3, 1, 3, 10, 100, 1e4)]
    tied = rng.integers(-1, 2, (24, classes)) * rng.choice([0.0, 1.0, 7.0], (24, 1))
    peaks = np.eye(classes)[rng.integers(0, classes, 12)] * rng.choice([30.0, 800.0, 1e4], (12, 1))
    rows = np.concatenate([*scales, tied, peaks, peaks - 1e3]).astype(np.float32)
    if policy.takes == "probabilities":
        rows = softmax(NumpyOps(), rows.astype(np.float64)).astype(np.float32)
    parts, groups = [rows], [rng.integers(-1, len(policy.group_names or limits) + 1, len(rows))]

    def answer(rows: Array) -> Decision[Any]:
        return decide(policy, rows, None if policy.group_names is None else np.zeros(len(rows)))

    def scores(rows: Array) -> Array:
        return answer(rows).score[:, 0]

    def probe(score: Callable[[Array], Array], rows: Array, limit: float, group: int) -> None:
        parts.append(_around(score, rows, limit))
        groups.append(np.full(len(parts[-1]), group))

    if policy.classes is None:
        for number, limit in enumerate(limits):
            probe(scores, rows, limit, number)
    else:
        number_of = {name: number for number, name in enumerate(policy.group_names or ())}
        labels = answer(rows).label[:, 0]
        for at in np.unique(np.linspace(0, len(policy.classes) - 1, MOST_PROBED).astype(int)):
            part = policy.classes[at]
            probe(scores, rows[labels == part.label], part.threshold.value, number_of.get(str(part.group), 0))
    if (sets := policy.sets) is not None:

        def distances(column: int, rows: Array) -> Array:  # how far inside the sets a class is
            return sets.distances(NumpyOps(), answer(rows).probabilities)[:, column]

        for column in (0, classes - 1):
            probe(functools.partial(distances, column), rows, 0.0, 0)
    return np.concatenate(parts), np.concatenate(groups)


def _around(score: Callable[[Array], Array], rows: Array, limit: float) -> Array:
    """Twelve pairs of rows, as close as float32 allows, whose scores lie on either side of the threshold."""
    scores = score(rows)
    below, above = np.flatnonzero(scores < limit), np.flatnonzero(scores >= limit)
    if not len(below) or not len(above):
        return rows[:0]
    low, high = (rows[side[np.linspace(0, len(side) - 1, 12).astype(int)]] for side in (below, above))
    for _ in range(40):
        middle = ((low.astype(np.float64) + high) / 2).astype(np.float32)
        over = (score(middle) >= limit)[:, None]
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return np.concatenate([low, high])
