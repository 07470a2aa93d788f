"""A policy behind the graph of a model, as one ONNX model with names and metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from calibrant.export.graph import GROUP, OUTPUTS, PREFIX, draw
from calibrant.export.model_file import LARGEST, MARK, check
from calibrant.export.source import Source, TensorInfo
from calibrant.export.surgery import prefixed
from calibrant.selective import Policy

if TYPE_CHECKING:
    from onnx import ModelProto

_TOLD = {
    "label": "the predicted class",
    "confidence": "the calibrated probability of the predicted class",
    "accept": "whether to answer; false abstains",
    "probabilities": "the calibrated probabilities",
}


def logits_only(policy: Policy, opset: int) -> Source:
    """A graph of nothing but its input."""
    from onnx import TensorProto, helper

    # An output is called probabilities already.
    name = "logits" if policy.takes == "logits" else "model_probabilities"
    dims = ("N", policy.num_classes, *(("H", "W") if policy.kind == "segmentation" else ()))
    info = helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    opsets = [helper.make_opsetid("", opset)]
    graph = helper.make_graph([], "policy", [info], [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    logits = TensorInfo(name, "FLOAT", dims)
    return Source(model, logits, (logits,), opset)


def outputs_of(policy: Policy, source: Source, rank: int) -> tuple[TensorInfo, ...]:
    """The outputs of an extended graph, with the dimensions that are known of the logits."""
    known = source.logits.dims or (None,) * rank
    batch = known[0] if known[0] is not None else "N"
    flat, full = (batch, *known[2:]), (batch, policy.num_classes, *known[2:])
    kinds = ("INT64", "FLOAT", "BOOL", "FLOAT")
    return tuple(
        TensorInfo(name, kind, full if name == "probabilities" else flat)
        for name, kind in zip(OUTPUTS, kinds, strict=True)
    )


def extended(policy: Policy, source: Source, rank: int) -> ModelProto:
    """The source's graph with the policy drawn behind it."""
    import onnx
    from onnx import helper

    from calibrant import __version__

    names = frozenset(one.name for one in source.inputs)
    ours = {*OUTPUTS, *([GROUP] if policy.group_names is not None else [])}
    if names & ours:
        raise ValueError(f"the model has an input {min(names & ours)!r}, a name that the graph needs: rename the input")
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    prefixed(model.graph, "model/", names)
    logits = source.logits.name if source.logits.name in names else f"model/{source.logits.name}"
    drawn = draw(policy, logits, rank, source.opset)
    outputs = outputs_of(policy, source, rank)
    model.graph.node.extend(drawn.nodes)
    model.graph.initializer.extend(drawn.constants)
    if policy.group_names is not None:
        told = "the place of the sample's group in calibrant.group_names, anything else if it has none of them"
        dims = outputs[0].dims[:1] if outputs[0].dims else None
        model.graph.input.append(helper.make_tensor_value_info(GROUP, onnx.TensorProto.INT64, dims, told))
    del model.graph.output[:]
    for one in outputs:
        kind = onnx.TensorProto.DataType.Value(str(one.kind))
        model.graph.output.append(helper.make_tensor_value_info(one.name, kind, one.dims, _TOLD[one.name]))
    facts = {MARK: policy.summary, "calibrant.version": __version__, "calibrant.takes": policy.takes}
    for key, value in (("class_names", policy.class_names), ("group_names", policy.group_names)):
        if value is not None:
            facts[f"calibrant.{key}"] = json.dumps(value, ensure_ascii=False)
    helper.set_model_props(model, {**{one.key: one.value for one in model.metadata_props}, **facts})
    if model.ByteSize() > LARGEST:
        raise ValueError("models over 2 GB cannot be extended: with the policy this one would be")
    try:
        check(model)
    except Exception as error:
        raise ValueError(f"the extended graph is not valid ONNX: {' '.join(str(error).split())[:300]}") from None
    return model


def watched(model: ModelProto) -> ModelProto:
    """An extended graph that gives its own logits, in float64, as an output more."""
    import onnx

    found = onnx.ModelProto()
    found.CopyFrom(model)
    first = next(node for node in found.graph.node if node.name.startswith(PREFIX))
    found.graph.output.append(onnx.helper.make_tensor_value_info(first.output[0], onnx.TensorProto.DOUBLE, None))
    return found
