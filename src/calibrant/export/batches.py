"""What a check runs on: real inputs, random ones, or logits that try a policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._arrays import as_numpy
from calibrant.export.graph import GROUP
from calibrant.export.meaning import check_values
from calibrant.export.runtime import Array, Feeds, Runner, runner
from calibrant.export.source import INPUT, Source, TensorInfo
from calibrant.posthoc import NumpyOps, softmax
from calibrant.selective import Policy, decision

SIZES = (1, 33)  # batches of random inputs
BATCH = 64  # of given ones
MOST_NUMBERS = 2**24  # of a random input
MOST_DIMENSIONS = 16
_TYPES = {
    "FLOAT": "f4", "DOUBLE": "f8", "FLOAT16": "f2", "INT64": "i8", "INT32": "i4", "INT16": "i2", "INT8": "i1",
    "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "BOOL": "?",
}  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """What goes into a batch, and what becomes of it before the policy.

    Attributes:
        feeds: the inputs by name.
        group: ``[N]``, if the policy has groups.
        logits: what onnxruntime makes of the inputs.
        reference: the logits that the graph's answers are held against: PyTorch's, if the model is PyTorch's.
    """

    feeds: Feeds
    group: Array | None
    logits: Array
    reference: Any


#: A model as its own framework runs it: an array in, logits out.
Reference = Callable[[Array], Any]


def _groups(policy: Policy, rows: int, seed: int) -> Array | None:
    if policy.group_names is None:
        return None
    return np.random.default_rng(seed).integers(-1, len(policy.limits) + 1, rows)


def telling_batches(policy: Policy) -> list[Batch]:
    """Rows of every kind, as images for segmentation; and the first row alone."""
    rows, group = telling_rows(policy)
    if policy.kind == "segmentation":
        # One group for an image: rows that share one lie together.
        order = np.argsort(group, kind="stable")
        rows, group = rows[order], group[order]
        pieces = [np.flatnonzero(group == one) for one in np.unique(group)]
        pixels = np.concatenate([np.resize(piece, (-(-len(piece) // 6), 6)) for piece in pieces])
        rows, group = rows[pixels].reshape(-1, 2, 3, rows.shape[1]).transpose(0, 3, 1, 2), group[pixels[:, 0]]
    name = "logits" if policy.takes == "logits" else "model_probabilities"
    rows = np.ascontiguousarray(rows)
    held = None if policy.group_names is None else group
    return [
        Batch({name: rows[part]}, None if held is None else held[part], rows[part], rows[part])
        for part in (slice(None), slice(0, 1))
    ]


def batches_of(
    policy: Policy, source: Source, inputs: Any, shape: Sequence[int] | None, model: Reference | None = None
) -> list[Batch]:
    """Given or random inputs, run through the model alone."""
    run = runner(source.model, "the model")
    first = next((one.dims for one in source.inputs if one.dims != ()), None)
    size = first[0] if first and isinstance(first[0], int) else None
    if size is not None:
        source.remarks.append(f"The model's batch is fixed at {size}: so is the graph's.")
    feeds: list[Feeds] = []
    groups: list[Array | None] = []
    if inputs is not None:
        given, group = given_inputs(source.inputs, inputs)
        rows = count(source.inputs, given)
        if size is not None and rows < size:
            raise ValueError(f"inputs must have at least the {size} rows of the model's fixed batch, got {rows}")
        starts = range(0, rows - (size or 1) + 1, size or BATCH)
        parts = [slice(i, i + (size or BATCH)) for i in starts] + ([] if size is not None else [slice(0, 1)])
        for part in parts:
            feeds.append({name: one[part] if one.ndim and len(one) == rows else one for name, one in given.items()})
            groups.append(None if group is None else group[part])
    else:
        sizes = SIZES if size is None else (size,) * max(1, SIZES[1] // size)
        feeds = [random_inputs(source.inputs, n, shape, seed) for seed, n in enumerate(sizes)]
        groups = [None] * len(feeds)
    found: list[Batch] = []
    for i, (feed, group) in enumerate(zip(feeds, groups, strict=True)):
        try:
            logits = run(feed)[0]
        except ValueError:
            if inputs is not None or size is not None or not found:
                raise
            source.remarks.append(f"The model takes batches of 1, but not of {SIZES[i]}.")
            continue
        check_logits(logits, policy)
        if policy.group_names is not None and group is None:
            group = _groups(policy, len(logits), i)
        elif policy.group_names is None:
            group = None
        found.append(Batch(feed, group, logits, logits if model is None else model(feed[INPUT])))
    if model is not None and policy.kind == "segmentation":
        found += _other_size(policy, source, found[0], model, run)
    _look(policy, source, found)
    return found


def _other_size(policy: Policy, source: Source, batch: Batch, model: Reference, run: Runner) -> list[Batch]:
    """One image of twice the size, where the graph says it may vary; a remark where it may not."""
    image = batch.feeds[INPUT][:1]
    size = " x ".join(str(n) for n in image.shape[2:])
    only = f"The graph takes images of {size} only"
    if any(isinstance(d, int) for d in (source.inputs[0].dims or ())[2:]):
        source.remarks.append(f"{only}: the model does not let PyTorch vary that.")
        return []
    larger = np.tile(image, (1, 1, *[2] * (image.ndim - 2)))
    try:
        theirs = model(larger)
    except Exception:  # whatever a model raises
        source.remarks.append(f"{only}, or not of twice that size: nor does the model.")
        return []
    try:
        return [Batch({INPUT: larger}, _groups(policy, 1, 0), run({INPUT: larger})[0], theirs)]
    except ValueError:
        source.remarks.append(f"{only}: twice the size fails in onnxruntime.")
        return []


def _look(policy: Policy, source: Source, batches: Sequence[Batch]) -> None:
    """Whether what the model gives is what the policy takes."""
    values = [np.moveaxis(batch.logits, 1, -1).reshape(-1, policy.num_classes).astype(np.float64) for batch in batches]
    rows = np.concatenate(values)
    if not np.isfinite(rows).all():
        source.remarks.append(
            "Some of the model's outputs in the check are not finite; without a confidence no row is accepted."
        )
    check_values(rows, source.logits.name, policy)


# ---------------------------------------------------------------------- inputs


def random_inputs(inputs: Sequence[TensorInfo], rows: int, shape: Sequence[int] | None, seed: int = 0) -> Feeds:
    """Normal numbers, small whole ones or coin flips, as each input takes them."""
    rng = np.random.default_rng(seed)
    if shape is not None and len(inputs) != 1:
        raise ValueError(f"input_shape is for models with one input, this has {', '.join(map(str, inputs))}")
    return {one.name: _random(one, rows, shape, rng) for one in inputs}


def _random(one: TensorInfo, rows: int, shape: Sequence[int] | None, rng: np.random.Generator) -> Array:
    if one.kind not in _TYPES:
        raise ValueError(f"no random values can be made for {one}: give inputs for the check")
    known: list[int | str | None] | None = None if one.dims is None else list(one.dims)
    if shape is not None:
        asked: list[int | str | None] = [None, *shape]
        if known is not None and (
            len(known) != len(asked)
            or any(isinstance(k, int) and k != a for k, a in zip(known[1:], shape, strict=True))
        ):
            raise ValueError(f"input_shape must fit {one}, without the batch, got {list(shape)}")
        known = [None if known is None else known[0], *shape]
    if known is None or any(not isinstance(d, int) for d in known[1:]):
        raise ValueError(f"the shape of {one} is not known: give input_shape (without the batch) or inputs")
    check_size(f"the shape of {one}", [d for d in known[1:] if isinstance(d, int)])
    size = [d if isinstance(d, int) else rows for d in known]
    kind = np.dtype(_TYPES[one.kind])
    if kind.kind == "f":
        return rng.standard_normal(size).astype(kind)
    return rng.integers(0, 2 if kind.kind == "b" else 4, size).astype(kind)


def check_size(what: str, shape: Sequence[int]) -> None:
    """Raise if an input, whose shape comes without the batch, is too large to be drawn at random."""
    if len(shape) > MOST_DIMENSIONS or math.prod(shape) > MOST_NUMBERS:
        asked = f"at most {MOST_DIMENSIONS} dimensions and {MOST_NUMBERS:,} numbers"
        raise ValueError(f"{what} must have {asked}, got {str(list(shape))[:60]}: for more, give inputs for the check")


def given_inputs(inputs: Sequence[TensorInfo], given: Any) -> tuple[Feeds, Array | None]:
    """An array for the only input, or arrays by name, checked; and groups, if they are among them."""
    named: dict[str, Array] = {}
    if isinstance(given, Mapping):
        named = {str(name): as_numpy(f"inputs {name}", value)[0] for name, value in given.items()}
    elif len(inputs) == 1:
        named = {inputs[0].name: as_numpy("inputs", given)[0]}
    else:
        raise ValueError(f"inputs must be arrays by name for {', '.join(map(str, inputs))}, got one array")
    group = named.pop(GROUP, None) if GROUP not in {one.name for one in inputs} else None
    if len(inputs) == len(named) == 1:
        named = {inputs[0].name: next(iter(named.values()))}
    if set(named) != {one.name for one in inputs}:
        raise ValueError(f"inputs must be {', '.join(map(str, inputs))}, got {', '.join(named) or 'none'}")
    feeds = {one.name: _fitted(one, named[one.name]) for one in inputs}
    rows = count(inputs, feeds)
    if not rows:
        raise ValueError("inputs must have at least one row, got none")
    if group is not None and (group.shape != (rows,) or group.dtype.kind not in "iu"):
        raise ValueError(f"group must be whole numbers, one for each row, got {group.dtype} {list(group.shape)}")
    return feeds, None if group is None else group.astype(np.int64)


def count(inputs: Sequence[TensorInfo], feeds: Feeds) -> int:
    """How many rows there are: the first input that is no single number has them."""
    return next((len(feeds[one.name]) for one in inputs if feeds[one.name].ndim), 1)


def _fitted(one: TensorInfo, value: Array) -> Array:
    """Check an array against what an input takes; floating-point numbers are cast."""
    dims = one.dims
    if dims is not None and (
        len(dims) != value.ndim
        or any(isinstance(d, int) and d != n for d, n in zip(dims[1:], value.shape[1:], strict=True))
    ):
        raise ValueError(f"inputs must fit {one}, got {list(value.shape)}")
    if one.kind not in _TYPES:
        return value
    wanted = np.dtype(_TYPES[one.kind])
    if value.dtype != wanted and (value.dtype.kind == "f") != (wanted.kind == "f"):
        raise ValueError(f"inputs must fit {one}, got {value.dtype}")
    return np.ascontiguousarray(value, dtype=wanted)


def telling_rows(policy: Policy, seed: int = 0) -> tuple[Array, Array]:
    """Logits that try a policy: of all scales, saturated, tied, and on both sides of every threshold; and groups."""
    rng = np.random.default_rng(seed)
    classes, limits = policy.num_classes, policy.limits
    scales = [rng.standard_normal((16, classes)) * scale for scale in (0.01, 0.3, 1, 3, 10, 100, 1e4)]
    tied = rng.integers(-1, 2, (24, classes)) * rng.choice([0.0, 1.0, 7.0], (24, 1))
    peaks = np.eye(classes)[rng.integers(0, classes, 12)] * rng.choice([30.0, 800.0, 1e4], (12, 1))
    rows = np.concatenate([*scales, tied, peaks, peaks - 1e3]).astype(np.float32)
    if policy.takes == "probabilities":
        rows = softmax(NumpyOps(), rows.astype(np.float64)).astype(np.float32)
    group = rng.integers(-1, len(limits) + 1, len(rows))
    scores = _scores(policy, rows)
    parts, groups = [rows], [group]
    for place, limit in enumerate(limits):
        near = _around(policy, rows, scores, limit)
        parts.append(near)
        groups.append(np.full(len(near), place))
    return np.concatenate(parts), np.concatenate(groups)


def _scores(policy: Policy, rows: Array) -> Array:
    group = None if policy.group_names is None else np.zeros((len(rows), 1))
    return decision(policy, NumpyOps(), rows.astype(np.float64), group).score[:, 0]


def _around(policy: Policy, rows: Array, scores: Array, limit: float, pairs: int = 12) -> Array:
    """Pairs of rows, as near to each other as float32 allows, whose scores lie on either side of the threshold."""
    below, above = np.flatnonzero(scores < limit), np.flatnonzero(scores >= limit)
    if not len(below) or not len(above):
        return rows[:0]
    low, high = (rows[some[np.linspace(0, len(some) - 1, pairs).astype(int)]] for some in (below, above))
    for _ in range(40):
        middle = ((low.astype(np.float64) + high) / 2).astype(np.float32)
        over = (_scores(policy, middle) >= limit)[:, None]
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return np.concatenate([low, high])


def check_logits(logits: Any, policy: Policy) -> None:
    """Raise unless what a model gave has the shape that the policy takes."""
    shape = list(logits.shape)
    rank = len(shape) > 2 if policy.kind == "segmentation" else len(shape) == 2
    if not rank or shape[1] != policy.num_classes:
        asked = f"[N, {policy.num_classes}{', H, W' if policy.kind == 'segmentation' else ''}]"
        raise ValueError(f"the policy is for {policy.kind} and takes {policy.takes} {asked}, the model gives {shape}")
