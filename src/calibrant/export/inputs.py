"""Inputs for the check of an export: real ones, from arrays or a file, or random ones, run through the model alone."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.base.arrays import Array, as_numpy
from calibrant.base.checks import listing
from calibrant.base.files import MAGIC, read_header, read_regular, read_values
from calibrant.export.graph import GROUP
from calibrant.export.model_outputs import INPUT, LogitsModel, check_values, has_rank, one_column_hint, shape_of_logits
from calibrant.export.onnx_model import Feeds, Runner, TensorInfo, brief, make_runner
from calibrant.export.verify import CLOSE, CheckBatch
from calibrant.policy import Policy

if TYPE_CHECKING:
    from calibrant.export.expected import ExpectedRows

SIZES = (1, 33)  # batches of random inputs
BATCH = 64  # of given ones
MOST_NUMBERS = 2**24  # of a random input
MOST_DIMENSIONS = 16
LARGEST_FILE = 2**31  # bytes of a file, and of all arrays in it
_TYPES = {
    "FLOAT": "f4", "DOUBLE": "f8", "FLOAT16": "f2", "INT64": "i8", "INT32": "i4", "INT16": "i2", "INT8": "i1",
    "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "BOOL": "?",
}  # fmt: skip

#: Operations that give other values each time.
_RANDOM = (
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"
)  # fmt: skip

#: A model as its own framework runs it: an array in, logits out.
Reference = Callable[[Array], Any]


def model_batches(
    policy: Policy,
    source: LogitsModel,
    inputs: Any,
    shape: Sequence[int] | None,
    model: Reference | None = None,
    expected: ExpectedRows | None = None,
) -> list[CheckBatch]:
    """Given or random inputs, run through the model alone.

    Rows of what is ``expected`` must be those of the inputs; its groups are used where the inputs bring none.
    """
    run = make_runner(source.model, "the model")
    dims = next((value.dims for value in source.inputs if value.dims != ()), None)
    size = dims[0] if dims and isinstance(dims[0], int) else None
    if size is not None:
        source.remarks.append(f"The batch size of the model is fixed at {size}, and so is that of the graph.")
    if inputs is not None:
        feeds = _cut(source.inputs, inputs, size, expected)
    else:
        sizes = SIZES if size is None else (size,) * max(1, SIZES[1] // size)
        feeds = [(random_inputs(source.inputs, rows, shape, seed), None) for seed, rows in enumerate(sizes)]
    batches: list[CheckBatch] = []
    start = 0
    for i, (feed, group) in enumerate(feeds):
        try:
            logits, *own = run(feed)
        except ValueError:
            if inputs is not None or size is not None or not batches:
                raise
            source.remarks.append(f"The model takes batches of 1, but not of {SIZES[i]}.")
            continue
        check_logits(logits, policy)
        if i < 2:
            _check_repeatable(source, logits, run(feed)[0])
        if policy.group_names is None or group is None:
            group = _random_groups(policy, len(logits), i)
        repeats = inputs is not None and size is None and i > 0 and i == len(feeds) - 1
        reference = logits if model is None else model(feed[INPUT])
        batches.append(CheckBatch(feed, group, logits, reference, own[0] if own else None, start, repeats))
        start += len(logits)
    if model is not None and policy.kind == "segmentation":
        batches += _other_size(policy, source, batches[0], model, run)
    values = [np.moveaxis(batch.logits, 1, -1).reshape(-1, policy.num_classes).astype(np.float64) for batch in batches]
    rows = np.concatenate(values)
    if not np.isfinite(rows).all():
        source.remarks.append(
            "Some of the model's outputs in the check are not finite; without a confidence no row is accepted."
        )
    check_values(rows, source.logits.name, policy)
    return batches


def _check_repeatable(source: LogitsModel, logits: Array, again: Array) -> None:
    """Raise if a model answers the same inputs differently, beyond rounding.

    onnxruntime draws the same random numbers in every new session, so that comparing two sessions does not show it.
    """
    a, b = logits.astype(np.float64), again.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        differs = ~(gap <= CLOSE * np.abs(a[np.isfinite(a)]).max(initial=1.0))
    if differs.any():
        drawn = sorted({node.op_type for node in source.model.graph.node} & set(_RANDOM))
        raise ValueError(
            f"the model answers the same inputs differently each time, {source.logits.name} by up to {gap.max():.3g}"
            f"{f': it draws random numbers ({listing(drawn, 3)})' if drawn else ''}; export it as it is used for "
            "predictions, without dropout or other noise"
        )


def _random_groups(policy: Policy, rows: int, seed: int) -> Array | None:
    """Groups of the policy and others, or None where it has none."""
    if policy.group_names is None:
        return None
    return np.random.default_rng(seed).integers(-1, len(policy.group_names) + 1, rows)


def _cut(
    inputs: Sequence[TensorInfo], values: Any, size: int | None, expected: ExpectedRows | None
) -> list[tuple[Feeds, Array | None]]:
    """Given inputs and groups in batches of the model's size, or of `BATCH` and, to repeat it, one of the first row."""
    arrays, group = check_inputs(inputs, values)
    rows = _count(inputs, arrays)
    if expected is not None:
        expected.check_rows(rows)
        group = expected.group if group is None else group
    if size is not None and rows < size:
        raise ValueError(f"inputs must have at least the {size} rows of the model's fixed batch, got {rows}")
    step = size or BATCH
    parts = [slice(i, i + step) for i in range(0, rows - (size or 1) + 1, step)] + ([slice(0, 1)] if not size else [])
    # A length that the graph fixes is that of the batch only if the batch is fixed too.
    fixed = {value.name for value in inputs if value.dims and isinstance(value.dims[0], int) and size is None}
    in_rows = {name for name, array in arrays.items() if array.ndim and len(array) == rows and name not in fixed}
    return [
        (
            {name: array[part] if name in in_rows else array for name, array in arrays.items()},
            None if group is None else group[part],
        )
        for part in parts
    ]


def _other_size(
    policy: Policy, source: LogitsModel, batch: CheckBatch, model: Reference, run: Runner
) -> list[CheckBatch]:
    """One image of twice the size, where the model and its graph take it; a remark where they do not."""
    image = batch.feeds[INPUT][:1]
    larger = np.tile(image, (1, 1, *[2] * (image.ndim - 2)))
    try:
        reference, logits = model(larger), run({INPUT: larger})[0]
    except Exception as error:  # whatever a model raises
        size = " x ".join(str(n) for n in image.shape[2:])
        reason = f"on twice that size it fails: {brief(error)}"
        source.remarks.append(f"The graph was checked with images of {size} and may take no others; {reason}.")
        return []
    return [CheckBatch({INPUT: larger}, _random_groups(policy, 1, 0), logits, reference, repeats=True)]


def check_logits(logits: Any, policy: Policy) -> None:
    """Raise unless what a model gave has the shape that the policy takes."""
    shape = list(logits.shape)
    if not has_rank(policy, len(shape)) or shape[1] != policy.num_classes:
        hint = one_column_hint(policy, shape)
        raise ValueError(
            f"the policy is for {policy.kind} and takes {shape_of_logits(policy)}, the model gives {shape}{hint}"
        )


# ---------------------------------------------------------------------- arrays for the inputs of a graph


def random_inputs(inputs: Sequence[TensorInfo], rows: int, shape: Sequence[int] | None, seed: int = 0) -> Feeds:
    """Normal numbers, small whole ones or coin flips, as each input takes them."""
    rng = np.random.default_rng(seed)
    if shape is not None and len(inputs) != 1:
        raise ValueError(f"input_shape is for models with one input, this has {', '.join(map(str, inputs))}")
    return {value.name: _random(value, rows, shape, rng) for value in inputs}


def _random(value: TensorInfo, rows: int, shape: Sequence[int] | None, rng: np.random.Generator) -> Array:
    if value.kind not in _TYPES:
        raise ValueError(f"no random values can be made for {value}: give inputs for the check")
    dims = value.dims
    if shape is not None:
        if dims is not None and not _dims_match(dims, (rows, *shape)):
            raise ValueError(f"input_shape must fit {value}, without the batch, got {list(shape)}")
        dims = (None if dims is None else dims[0], *shape)
    if dims is None or any(not isinstance(d, int) for d in dims[1:]):
        raise ValueError(f"the shape of {value} is not known: give input_shape (without the batch) or inputs")
    check_input_size(f"the shape of {value}", [d for d in dims[1:] if isinstance(d, int)])
    size = [d if isinstance(d, int) else rows for d in dims]
    dtype = np.dtype(_TYPES[value.kind])
    if dtype.kind == "f":
        return rng.standard_normal(size).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 4, size).astype(dtype)


def _dims_match(dims: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    """Whether a shape, whatever its batch, agrees with what is known of the dimensions."""
    pairs = zip(dims[1:], shape[1:], strict=False)
    return len(dims) == len(shape) and all(not isinstance(d, int) or d == n for d, n in pairs)


def check_input_size(name: str, shape: Sequence[int]) -> None:
    """Raise if an input, whose shape comes without the batch, is too large to be drawn at random."""
    if len(shape) > MOST_DIMENSIONS or math.prod(shape) > MOST_NUMBERS:
        requirement = f"at most {MOST_DIMENSIONS} dimensions and {MOST_NUMBERS:,} numbers"
        raise ValueError(
            f"{name} must have {requirement}, got {str(list(shape))[:60]}: for more, give inputs for the check"
        )


def check_inputs(inputs: Sequence[TensorInfo], values: Any) -> tuple[Feeds, Array | None]:
    """An array for the only input, or arrays by name, checked; and groups, if they are among them."""
    described = ", ".join(map(str, inputs))
    if isinstance(values, Mapping):
        arrays = {str(name): as_numpy(f"inputs {name}", value)[0] for name, value in values.items()}
    elif len(inputs) == 1:
        arrays = {inputs[0].name: as_numpy("inputs", values)[0]}
    else:
        raise ValueError(f"inputs must be arrays by name for {described}, got one array")
    names = {value.name for value in inputs}
    group = arrays.pop(GROUP, None) if GROUP not in names else None
    if len(inputs) == len(arrays) == 1:
        arrays = {inputs[0].name: next(iter(arrays.values()))}
    if set(arrays) != names:
        raise ValueError(f"inputs must be {described}, got {', '.join(arrays) or 'none'}")
    feeds = {value.name: _cast(value, arrays[value.name]) for value in inputs}
    rows = _count(inputs, feeds)
    if not rows:
        raise ValueError("inputs must have at least one row, got none")
    if group is not None and (group.shape != (rows,) or group.dtype.kind not in "iu"):
        raise ValueError(f"group must be whole numbers, one for each row, got {group.dtype} {list(group.shape)}")
    return feeds, None if group is None else group.astype(np.int64)


def _count(inputs: Sequence[TensorInfo], feeds: Feeds) -> int:
    """How many rows there are: the first input that is no single number has them."""
    return next((len(feeds[value.name]) for value in inputs if feeds[value.name].ndim), 1)


def _cast(value: TensorInfo, array: Array) -> Array:
    """Check an array against what an input takes; floating-point numbers are cast."""
    if value.dims is not None and not _dims_match(value.dims, array.shape):
        raise ValueError(f"inputs must fit {value}, got {list(array.shape)}")
    if value.kind not in _TYPES:
        return array
    dtype = np.dtype(_TYPES[value.kind])
    if array.dtype != dtype and (array.dtype.kind == "f") != (dtype.kind == "f"):
        raise ValueError(f"inputs must fit {value}, got {array.dtype}")
    return np.ascontiguousarray(array, dtype=dtype)


# ---------------------------------------------------------------------- files


def read_inputs(path: str | Path, only: Collection[str] | None = None) -> Array | dict[str, Array]:
    """The array of a ``.npy`` file, or those of a ``.npz`` file by name; nothing is unpickled.

    Sizes are checked before any array is read. With ``only`` arrays of other names are left out, and text is read too.
    """
    data = read_regular(path, LARGEST_FILE)
    kinds = "fiub" if only is None else "fiubU"
    try:
        return _array(data, "the file", kinds) if data.startswith(MAGIC) else _arrays(data, only, kinds)
    except Exception as error:  # zipfile and zlib have classes of their own
        raise ValueError(f"{path}: not a .npy or .npz file of numbers ({brief(error)})") from None


def _arrays(data: bytes, only: Collection[str] | None, kinds: str) -> dict[str, Array]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [member for member in archive.infolist() if only is None or member.filename[:-4] in only]
        size = sum(member.file_size for member in members)
        if size > LARGEST_FILE:
            raise ValueError(f"the arrays must have at most {LARGEST_FILE:,} bytes, got {size:,}")
        names = [member.filename.removesuffix(".npy") for member in members]
        if (not names and only is None) or len(set(names)) < len(names):
            raise ValueError("arrays must have names that differ" if names else "there is no array in it")
        # Read to the end, where the checksum is compared.
        return {name: _array(archive.read(member), name, kinds) for name, member in zip(names, members, strict=True)}


def _array(data: bytes, name: str, kinds: str) -> Array:
    file = io.BytesIO(data)
    if not data.startswith(MAGIC):
        raise ValueError(f"{name} is not a NumPy array")
    header = read_header(file)
    if header.kind not in kinds:
        raise ValueError(f"{name} must be numbers, got {header.code}")
    size = len(data) - header.size
    if size != header.data_size:
        announced = f"{header.data_size:,} bytes of {header.dtype} {list(header.shape)}"
        raise ValueError(f"{name} must have {announced}, got {size:,}")
    return read_values(file, header)
