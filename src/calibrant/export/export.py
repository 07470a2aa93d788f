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

from calibrant.base.checks import differing_names, listing
from calibrant.base.extras import need
from calibrant.base.files import check_output, written_aside
from calibrant.base.numbers import percent
from calibrant.export.agreement import CHANCE, check_model, differences_from_fit, one_column_mismatch
from calibrant.export.expected import ExpectedCheck, to_expected
from calibrant.export.graph import attach, interface, make_logits_graph
from calibrant.export.inputs import check_input_size, model_batches
from calibrant.export.model_outputs import prepare
from calibrant.export.onnx_model import OLDEST, TensorInfo, newest_opset, read
from calibrant.export.verify import Agreement, CheckBatch, Verification, make_probing_batches, verify
from calibrant.policy import Policy

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
        checks: what the graph was checked against: the policy, the model's own label, expected answers.
        not_checked: what nothing was there to check by, such as the order of the classes.
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
    checks: tuple[Agreement, ...] = ()
    not_checked: tuple[str, ...] = ()


def export_onnx(
    policy: Policy,
    path: str | Path,
    *,
    model: nn.Module | None = None,
    onnx_model: str | Path | ModelProto | None = None,
    input_shape: Sequence[int] | None = None,
    output: str | None = None,
    labels: str | None = None,
    inputs: Any = None,
    expected: Any = None,
    class_names: Sequence[str] | None = None,
    opset: int | None = None,
) -> Exported:
    """Write one ONNX graph from a model's inputs to label, confidence, accept and probabilities.

    Behind a PyTorch model, behind an existing ONNX model of any framework, or, with neither, from the logits on. The
    graph computes the policy in float64. Before it is written, onnxruntime's answers are compared with those of the
    policy itself, to the logits that PyTorch makes where the model is PyTorch's: labels and decisions must be equal,
    probabilities and confidences within 1e-5, prediction sets equal in every class.

    That does not show that the model is the policy's, or that its outputs are in the order of the policy's classes.
    Where a model has a label output of its own, the class of its largest output must be that label, but for few
    rows; with ``expected`` the answers must be the expected ones, but for 1% of the rows, which float32 may explain.
    What contradicts is a ValueError. What nothing was there to check by is listed in ``not_checked``.

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
            outputs could be, by their types and shapes; of a PyTorch model the key, attribute or position, where it
            returns more than one tensor.
        labels: which other output is the model's own label, or "none" if none is: needed where several could be, which
            are outputs of text or whole numbers with one for each row. A single one is taken for it.
        inputs: for the check, real inputs: an array, or arrays by name (``group`` among them, if the policy has
            groups). Random ones are drawn otherwise.
        expected: what is right for these inputs, row by row: `Predictions` (those that the policy was fitted on, if
            the inputs are those samples), `Decisions` or predicted labels; or the path of a file of one of these.
        class_names: of the model's outputs, in their order, where they are known; they must be the policy's.
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
    if model is not None and onnx_model is not None:
        raise ValueError("give model or onnx_model, not both")
    options = {"output": output, "labels": labels, "inputs": inputs, "input_shape": input_shape, "expected": expected}
    given = [name for name, value in options.items() if value is not None]
    if model is None and onnx_model is None and given:
        raise ValueError(f"{given[0]} goes with a model, and none is given")
    both_exist = isinstance(onnx_model, str | Path) and path.exists() and Path(onnx_model).exists()
    if both_exist and os.path.samefile(path, str(onnx_model)):
        raise ValueError(f"{path}: the model would be overwritten by its extension, write to another file")
    if opset is not None and onnx_model is not None:
        raise ValueError("opset cannot be given with onnx_model, which has its own")
    if opset is not None and (type(opset) is not int or not OLDEST <= opset <= newest_opset()):
        raise ValueError(f"opset must be a whole number from {OLDEST} to {newest_opset()}, got {opset!r}")
    if expected is not None and inputs is None:
        raise ValueError("expected answers go with inputs: give the inputs of the same rows")
    if class_names is not None and policy.class_names is not None and tuple(class_names) != policy.class_names:
        of_model, of_policy = differing_names(tuple(class_names), policy.class_names)
        raise ValueError(f"the model's classes are {of_model}, the policy's {of_policy}: they must be the same")
    if input_shape is not None and not all(type(n) is int and n > 0 for n in input_shape):
        raise ValueError(f"input_shape must be whole numbers above 0, without the batch, got {input_shape!r}")
    if input_shape is not None and inputs is None:
        check_input_size("input_shape", input_shape)

    wanted = None if expected is None else to_expected(policy, expected)
    with contextlib.ExitStack() as stack:
        if model is not None:
            from calibrant.export import torch_model
            from calibrant.models import evaluation_mode

            single_output = torch_model.SingleOutput(model, output, labels)
            stack.enter_context(evaluation_mode(model))
            source = torch_model.to_logits_model(single_output, policy, input_shape, inputs, opset or OPSET)
            batches = model_batches(policy, source, inputs, input_shape, single_output.answer, wanted)
        elif onnx_model is not None:
            source = prepare(read(onnx_model), policy, output, labels)
            batches = model_batches(policy, source, inputs, input_shape, expected=wanted)
        else:
            source, batches = make_logits_graph(policy, opset or OPSET), make_probing_batches(policy)
    if not any(np.isfinite(batch.logits).any() for batch in batches):
        raise ValueError("the model gives no finite number on any input of the check: are its weights sound?")
    rank = batches[0].logits.ndim
    graph = attach(policy, source, rank)
    expected_check = None if wanted is None else ExpectedCheck(policy, wanted)
    verification = verify(policy, graph, batches, expected_check)
    checks, not_checked = [verification.agreement()], list[str]()
    if expected_check is not None:
        checks.append(expected_check.agreement(one_column_mismatch(policy, batches)))
        not_checked += expected_check.not_checked
    if model is None and onnx_model is None:
        order = "" if policy.class_names is None else f", in the order {listing(policy.class_names, 5)}"
        not_checked.append(f"that the model's {policy.takes} are those that the policy was fitted on{order}")
    else:
        named = class_names is not None and policy.class_names is not None
        real, settled = inputs is not None, wanted is not None
        own, missing = check_model(policy, source, batches, real=real, settled=settled, named=named)
        checks, not_checked = [*checks, *own], [*not_checked, *missing]
    with written_aside(path) as aside:
        aside.write_bytes(graph.SerializeToString())
    remarks = (*source.remarks, *_remarks(policy, verification, batches, real=inputs is not None))
    counts = (verification.rows, verification.accepted, verification.undecided, verification.difference)
    graph_inputs, outputs = interface(policy, source, rank)
    return Exported(path, graph_inputs, outputs, source.opset, *counts, remarks, tuple(checks), tuple(not_checked))


def _remarks(policy: Policy, verification: Verification, batches: Sequence[CheckBatch], *, real: bool) -> list[str]:
    """Rounding, and whether the answers to real inputs look like those to the samples that the policy was fitted on."""
    remarks, rows = [], verification.rows
    if policy.abstains:
        remarks.append(f"The policy never answers, so the graph's accept is always false. {policy.summary}")
    if verification.undecided:
        remarks.append(
            f"In {verification.undecided} of {rows} rows the answers differ as rounding of the logits explains, "
            f"the probabilities by up to {verification.blur:.2g}."
        )
    expected, share = policy.threshold.coverage.value, verification.accepted / max(1, rows)
    if real and rows >= 50 and abs(share - expected) > 0.02 + 4 * math.sqrt(expected * (1 - expected) / rows):
        remarks.append(
            f"Of the given inputs {percent(share)} are accepted, of the samples that the policy was fitted on "
            f"{percent(expected)}: is it the same model, and are the inputs alike?"
        )
    unlike = differences_from_fit(policy, batches) if real else None
    if unlike:
        remarks.append(
            f"{listing(unlike).capitalize()} of the given inputs are distributed unlike those of the samples that the "
            f"policy was fitted on (p < {CHANCE:g}): another model, other numbers under the same name, or other data."
        )
    return remarks
