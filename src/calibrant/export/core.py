"""`export_onnx`: a model and its policy as one ONNX graph, checked before it is written."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant._files import check_output, written_aside
from calibrant._imports import need
from calibrant.export.batches import Batch, batches_of, check_size, telling_batches
from calibrant.export.compare import Comparison, Found
from calibrant.export.extend import extended, logits_only, outputs_of, watched
from calibrant.export.graph import GROUP, OLDEST
from calibrant.export.model_file import read
from calibrant.export.runtime import Array, Feeds, Runner, runner
from calibrant.export.source import Source, TensorInfo, prepare
from calibrant.selective import Policy

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import nn

OPSET = 18  # of graphs that begin here; onnxruntime has it since 1.14


@dataclass(frozen=True)
class Exported:
    """What was written, and what the check before it saw.

    Attributes:
        path: the file.
        inputs: of the graph, with types and shapes; None stands for any length.
        outputs: likewise.
        opset: of the graph.
        rows: how many answers of onnxruntime and of the policy itself were compared; positions count, for segmentation.
        accepted: how many of them were accepted.
        undecided: how many differ by no more than rounding explains.
        difference: the largest difference of probabilities or confidences in the others.
        remarks: what there is to know besides, in sentences.
    """

    path: Path
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    opset: int
    rows: int
    accepted: int
    undecided: int
    difference: float
    remarks: tuple[str, ...]


def export_onnx(
    policy: Policy,
    path: str | Path,
    *,
    model: nn.Module | None = None,
    onnx_model: str | Path | ModelProto | None = None,
    input_shape: Sequence[int] | None = None,
    output: str | None = None,
    inputs: Any = None,
    opset: int | None = None,
) -> Exported:
    """Write one ONNX graph from a model's inputs to label, confidence, accept and probabilities.

    Behind a PyTorch model, behind an existing ONNX model of any framework, or, with neither, from the logits on. The
    graph computes the policy in float64. Before it is written, onnxruntime's answers are compared with those of the
    policy itself, to the logits that PyTorch makes where the model is PyTorch's: labels and decisions must be equal,
    probabilities and confidences within 1e-5.

    ================  ===========  ===============================================================================
    output            type         shape
    ================  ===========  ===============================================================================
    label             int64        ``[N]``, for segmentation ``[N, H, W]``
    confidence        float32      likewise
    accept            bool         likewise
    probabilities     float32      ``[N, C]``, for segmentation ``[N, C, H, W]``
    ================  ===========  ===============================================================================

    A policy with thresholds by group has the input ``group`` besides, int64 ``[N]``: the place of each sample's group
    in the policy's list. A place that is not in the list is never accepted.

    Args:
        policy: what to do with the logits.
        path: the .onnx file to write.
        model: a PyTorch model with one input; it is exported in eval mode.
        onnx_model: an ONNX file, or a ModelProto.
        input_shape: of the model's input without the batch, where it cannot be known otherwise.
        output: which output is the logits. Of an ONNX model an output's or any tensor's name, needed where several
            could be; of a PyTorch model the key, attribute or place, where it returns more than one tensor.
        inputs: for the check, real inputs: an array, or arrays by name (``group`` among them, if the policy has
            groups). Random ones are drawn otherwise.
        opset: of the graph, 18 if not given; an existing model keeps its own, or is raised to 13.

    Returns:
        What was written and what the check saw.

    Example:
        >>> import os, tempfile, numpy as np
        >>> from calibrant import Policy, Predictions
        >>> from calibrant.export import export_onnx
        >>> logits = np.random.default_rng(0).standard_normal((500, 3))
        >>> policy = Policy.fit(Predictions.from_logits(logits, logits.argmax(1)), target_risk=0.2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = export_onnx(policy, os.path.join(folder, "policy.onnx"))
        >>> [one.name for one in done.inputs], done.difference < 1e-5
        (['logits'], True)
    """
    need("export_onnx", "export", "onnx", "onnxruntime", *(["onnxscript"] if model is not None else []))
    path = Path(path)
    _check_arguments(policy, path, model, onnx_model, input_shape, output, inputs, opset)
    done = _exported(policy, path, model, onnx_model, input_shape, output, inputs, opset)
    return done if inputs is None else replace(done, remarks=(*done.remarks, *_unlike(policy, done)))


def _unlike(policy: Policy, done: Exported) -> list[str]:
    """Whether real inputs are accepted about as often as the samples that the policy was fitted on."""
    expected, seen = policy.threshold.coverage.value, done.accepted / max(1, done.rows)
    if done.rows < 50 or abs(seen - expected) <= 0.02 + 4 * math.sqrt(expected * (1 - expected) / done.rows):
        return []
    return [
        f"Of the given inputs {seen:.1%} are accepted, of the samples that the policy was fitted on {expected:.1%}: "
        "is it the same model, and are the inputs alike?"
    ]


def _exported(
    policy: Policy,
    path: Path,
    model: nn.Module | None,
    onnx_model: str | Path | ModelProto | None,
    input_shape: Sequence[int] | None,
    output: str | None,
    inputs: Any,
    opset: int | None,
) -> Exported:
    if model is None and onnx_model is None:
        source = logits_only(policy, opset or OPSET)
        return _finish(policy, path, source, telling_batches(policy))
    if model is None:
        source = prepare(read(onnx_model), policy, output)  # type: ignore[arg-type]
        return _finish(policy, path, source, batches_of(policy, source, inputs, input_shape))
    from calibrant.export import torch_model

    with torch_model.evaluating(model):
        picked = torch_model.Picked(model, output)
        source = torch_model.source_of(picked, policy, input_shape, inputs, opset or OPSET)
        return _finish(policy, path, source, batches_of(policy, source, inputs, input_shape, picked.answer))


def _check_arguments(
    policy: Policy,
    path: Path,
    model: Any,
    onnx_model: Any,
    input_shape: Sequence[int] | None,
    output: str | None,
    inputs: Any,
    opset: int | None,
) -> None:
    import onnx

    if not isinstance(policy, Policy):
        raise ValueError(f"policy must be a Policy, got {type(policy).__name__}")
    if path.suffix.lower() != ".onnx":
        raise ValueError(f"{path}: a graph is written as .onnx, got {path.suffix!r}")
    check_output(path)
    if model is not None and onnx_model is not None:
        raise ValueError("model and onnx_model are both given: one of them makes the logits")
    if model is None and onnx_model is None:
        others = {"output": output, "inputs": inputs, "input_shape": input_shape}
        given = [name for name, one in others.items() if one is not None]
        if given:
            raise ValueError(f"{given[0]} goes with a model, and none is given")
    if onnx_model is not None:
        if opset is not None:
            raise ValueError("opset is not taken with onnx_model, which has its own")
        there = isinstance(onnx_model, str | Path) and path.exists() and Path(onnx_model).exists()
        if there and os.path.samefile(path, onnx_model):
            raise ValueError(f"{path}: the model would be overwritten by its extension, write to another file")
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and (type(opset) is not int or not OLDEST <= opset <= newest):
        raise ValueError(f"opset must be a whole number from {OLDEST} to {newest}, got {opset!r}")
    if input_shape is not None and not all(type(n) is int and n > 0 for n in input_shape):
        raise ValueError(f"input_shape must be whole numbers above 0, without the batch, got {input_shape!r}")
    if input_shape is not None and inputs is None:
        check_size("input_shape", input_shape)


# ---------------------------------------------------------------------- writing


def _finish(policy: Policy, path: Path, source: Source, batches: Sequence[Batch]) -> Exported:
    """Extend, compare, write."""
    if not any(np.isfinite(batch.logits).any() for batch in batches):
        raise ValueError("the model gives no finite number on any input of the check: are its weights sound?")
    rank = batches[0].logits.ndim
    model = extended(policy, source, rank)
    found = _compared(policy, model, batches)
    if found.undecided:
        source.remarks.append(
            f"In {found.undecided} of {found.rows} rows the answers differ by what rounding of the logits explains, "
            f"the probabilities by up to {found.blur:.2g}."
        )
    outputs = outputs_of(policy, source, rank)
    inputs = source.inputs
    if policy.group_names is not None:
        inputs = (*inputs, TensorInfo(GROUP, "INT64", outputs[0].dims[:1] if outputs[0].dims else None))
    with written_aside(path) as aside:
        aside.write_bytes(model.SerializeToString())
    done = (found.rows, found.accepted, found.undecided, found.difference)
    return Exported(path, inputs, outputs, source.opset, *done, tuple(source.remarks))


def _compared(policy: Policy, model: ModelProto, batches: Sequence[Batch]) -> Found:
    run, comparison = runner(model, "the extended graph"), Comparison(policy)

    @functools.cache
    def watching() -> Runner:
        return runner(watched(model), "the extended graph")

    for batch in batches:
        feeds = batch.feeds if batch.group is None else {**batch.feeds, GROUP: batch.group}

        def own(feeds: Feeds = feeds) -> Array:
            return watching()(feeds)[-1]

        comparison.add(run(feeds), batch.reference, batch.group, own)
    return comparison.result()
