"""`export_onnx`: a model and its policy as one ONNX graph, checked before it is written."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant._files import check_output, written_aside
from calibrant._imports import need
from calibrant._numbers import percent
from calibrant.export.graph import attach, interface, make_logits_graph
from calibrant.export.inputs import check_input_size, model_batches
from calibrant.export.logits_tensor import LogitsModel, TensorInfo, prepare
from calibrant.export.onnx_model import OLDEST, read
from calibrant.export.verify import CheckBatch, Verification, make_probing_batches, verify
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
        remarks: further remarks, in sentences.
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
    probabilities and confidences within 1e-5, prediction sets equal in every class.

    ================  ===========  ===============================================================================
    output            type         shape
    ================  ===========  ===============================================================================
    label             int64        ``[N]``, for segmentation ``[N, H, W]``
    confidence        float32      likewise
    accept            bool         likewise
    probabilities     float32      ``[N, C]``, for segmentation ``[N, C, H, W]``
    prediction_set    bool         ``[N, C]``, where the policy has prediction sets: the members of each
    ================  ===========  ===============================================================================

    A policy with thresholds by group has one more input, ``group``, int64 ``[N]``: the position of each sample's group
    in the policy's list. A sample whose number is not in the list is never accepted.

    Args:
        policy: what to do with the logits.
        path: the .onnx file to write.
        model: a PyTorch model with one input; it is exported in eval mode.
        onnx_model: an ONNX file, or a ModelProto.
        input_shape: of the model's input without the batch, where it cannot be known otherwise.
        output: which output is the logits. Of an ONNX model an output's or any tensor's name, needed where several
            could be; of a PyTorch model the key, attribute or position, where it returns more than one tensor.
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
        ...     exported = export_onnx(policy, os.path.join(folder, "policy.onnx"))
        >>> [tensor.name for tensor in exported.inputs], exported.difference < 1e-5
        (['logits'], True)
    """
    need("export_onnx", "export", "onnx", "onnxruntime", *(["onnxscript"] if model is not None else []))
    path = Path(path)
    if not isinstance(policy, Policy):
        raise ValueError(f"policy must be a Policy, got {type(policy).__name__}")
    if policy.sets is not None and policy.sets.randomised:
        raise ValueError("randomised prediction sets cannot be exported: fit the policy without set_randomised")
    if path.suffix.lower() != ".onnx":
        raise ValueError(f"{path}: a graph is written as .onnx, got {path.suffix!r}")
    check_output(path)
    _check_model_arguments(path, model, onnx_model, {"output": output, "inputs": inputs, "input_shape": input_shape})
    _check_opset(opset, onnx_model)
    if input_shape is not None and not all(type(n) is int and n > 0 for n in input_shape):
        raise ValueError(f"input_shape must be whole numbers above 0, without the batch, got {input_shape!r}")
    if input_shape is not None and inputs is None:
        check_input_size("input_shape", input_shape)

    with contextlib.ExitStack() as stack:
        if model is not None:
            from calibrant.export import torch_model
            from calibrant.models import evaluation_mode

            single_output = torch_model.SingleOutput(model, output)
            stack.enter_context(evaluation_mode(model))
            source = torch_model.to_logits_model(single_output, policy, input_shape, inputs, opset or OPSET)
            batches = model_batches(policy, source, inputs, input_shape, single_output.answer)
        elif onnx_model is not None:
            source = prepare(read(onnx_model), policy, output)
            batches = model_batches(policy, source, inputs, input_shape)
        else:
            source, batches = make_logits_graph(policy, opset or OPSET), make_probing_batches(policy)
        return _write(policy, path, source, batches, real=inputs is not None)


def _check_model_arguments(path: Path, model: Any, onnx_model: Any, model_options: dict[str, Any]) -> None:
    if model is not None and onnx_model is not None:
        raise ValueError("model and onnx_model are both given: one of them makes the logits")
    if model is None and onnx_model is None:
        for name, value in model_options.items():
            if value is not None:
                raise ValueError(f"{name} goes with a model, and none is given")
    both_exist = isinstance(onnx_model, str | Path) and path.exists() and Path(onnx_model).exists()
    if both_exist and os.path.samefile(path, onnx_model):
        raise ValueError(f"{path}: the model would be overwritten by its extension, write to another file")


def _check_opset(opset: int | None, onnx_model: Any) -> None:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if opset is not None and onnx_model is not None:
        raise ValueError("opset is not taken with onnx_model, which has its own")
    if opset is not None and (type(opset) is not int or not OLDEST <= opset <= newest):
        raise ValueError(f"opset must be a whole number from {OLDEST} to {newest}, got {opset!r}")


def _write(policy: Policy, path: Path, source: LogitsModel, batches: Sequence[CheckBatch], *, real: bool) -> Exported:
    """Attach the policy, check the graph, write it."""
    if not any(np.isfinite(batch.logits).any() for batch in batches):
        raise ValueError("the model gives no finite number on any input of the check: are its weights sound?")
    rank = batches[0].logits.ndim
    model = attach(policy, source, rank)
    verification = verify(policy, model, batches)
    with written_aside(path) as aside:
        aside.write_bytes(model.SerializeToString())
    remarks = (*source.remarks, *_remarks(policy, verification, real=real))
    inputs, outputs = interface(policy, source, rank)
    counts = (verification.rows, verification.accepted, verification.undecided, verification.difference)
    return Exported(path, inputs, outputs, source.opset, *counts, remarks)


def _remarks(policy: Policy, verification: Verification, *, real: bool) -> list[str]:
    """Rounding, and whether real inputs are accepted about as often as the samples that the policy was fitted on."""
    remarks, rows = [], verification.rows
    if policy.abstains:
        remarks.append(f"The policy never answers, so the graph's accept is always false. {policy.summary}")
    if verification.undecided:
        remarks.append(
            f"In {verification.undecided} of {rows} rows the answers differ by what rounding of the logits explains, "
            f"the probabilities by up to {verification.blur:.2g}."
        )
    expected, share = policy.threshold.coverage.value, verification.accepted / max(1, rows)
    if real and rows >= 50 and abs(share - expected) > 0.02 + 4 * math.sqrt(expected * (1 - expected) / rows):
        remarks.append(
            f"Of the given inputs {percent(share)} are accepted, of the samples that the policy was fitted on "
            f"{percent(expected)}: is it the same model, and are the inputs alike?"
        )
    return remarks
