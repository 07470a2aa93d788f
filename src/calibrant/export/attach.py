"""A policy attached to the graph of a model, as one ONNX model with names and metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from calibrant.export.graph import GROUP, OUTPUTS, PREFIX, SET, draw
from calibrant.export.logits_tensor import LogitsModel, TensorInfo
from calibrant.export.onnx_model import LARGEST, MARK, brief, check, named_values, subgraphs
from calibrant.selective import Policy

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

_DESCRIPTIONS = {
    "label": "the predicted class",
    "confidence": "the calibrated probability of the predicted class",
    "accept": "whether to answer; false abstains",
    "probabilities": "the calibrated probabilities",
    SET: "which classes are in the prediction set",
    GROUP: "the place of the sample's group in calibrant.group_names, anything else if it has none of them",
}


def logits_only(policy: Policy, opset: int) -> LogitsModel:
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
    return LogitsModel(model, logits, (logits,), opset)


def interface(policy: Policy, source: LogitsModel, rank: int) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """The inputs and outputs of the graph, with the dimensions that are known of the logits."""
    dims = source.logits.dims or (None,) * rank
    batch = dims[0] if dims[0] is not None else "N"
    flat, full = (batch, *dims[2:]), (batch, policy.num_classes, *dims[2:])
    outputs = (("label", "INT64", flat), ("confidence", "FLOAT", flat), ("accept", "BOOL", flat))
    group = () if policy.group_names is None else (TensorInfo(GROUP, "INT64", (batch,)),)
    probabilities = TensorInfo("probabilities", "FLOAT", full)
    sets = () if policy.sets is None else (TensorInfo(SET, "BOOL", full),)
    return (*source.inputs, *group), (*(TensorInfo(*output) for output in outputs), probabilities, *sets)


def attach(policy: Policy, source: LogitsModel, rank: int) -> ModelProto:
    """The model's graph with the policy drawn behind its logits of that rank."""
    import onnx
    from onnx import helper

    from calibrant import __version__

    names = frozenset(value.name for value in source.inputs)
    needed = {
        *OUTPUTS,
        *([GROUP] if policy.group_names is not None else []),
        *([SET] if policy.sets is not None else []),
    }
    reserved = names & needed
    if reserved:
        raise ValueError(f"the model has an input {min(reserved)!r}, a name that the graph needs: rename the input")
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    _prefix(model.graph, "model/", names)
    logits = source.logits.name if source.logits.name in names else f"model/{source.logits.name}"
    ops = draw(policy, logits, rank, source.opset)
    model.graph.node.extend(ops.nodes)
    model.graph.initializer.extend(ops.constants)
    del model.graph.output[:]
    inputs, outputs = interface(policy, source, rank)
    for values, side in ((inputs[len(source.inputs) :], model.graph.input), (outputs, model.graph.output)):
        for value in values:
            kind = onnx.TensorProto.DataType.Value(str(value.kind))
            side.append(helper.make_tensor_value_info(value.name, kind, value.dims, _DESCRIPTIONS[value.name]))
    facts = {MARK: policy.summary, "calibrant.version": __version__, "calibrant.takes": policy.takes}
    if policy.sets is not None:
        facts["calibrant.sets"] = " ".join(policy.sets.sentences(policy.class_names))
    for key, texts in (("class_names", policy.class_names), ("group_names", policy.group_names)):
        if texts is not None:
            facts[f"calibrant.{key}"] = json.dumps(texts, ensure_ascii=False)
    helper.set_model_props(model, {**{entry.key: entry.value for entry in model.metadata_props}, **facts})
    if model.ByteSize() > LARGEST:
        raise ValueError("models over 2 GB cannot be extended: with the policy this one would be")
    try:
        check(model)
    except Exception as error:
        raise ValueError(f"the extended graph is not valid ONNX: {brief(error, 300)}") from None
    return model


def with_own_logits(model: ModelProto) -> ModelProto:
    """A graph with its policy that also gives its own logits, in float64, as its last output."""
    import onnx

    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    first = next(node for node in watched.graph.node if node.name.startswith(PREFIX))
    watched.graph.output.append(onnx.helper.make_tensor_value_info(first.output[0], onnx.TensorProto.DOUBLE, None))
    return watched


def _prefix(graph: GraphProto, prefix: str, exceptions: frozenset[str]) -> None:
    """Put a prefix before every name but the exceptions, inside branches and loops too."""

    def rename(name: str) -> str:
        return name if not name or name in exceptions else prefix + name

    for node in graph.node:
        node.name = prefix + node.name if node.name else ""
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
        for inner in subgraphs(node):
            _prefix(inner, prefix, exceptions)
    for value in named_values(graph):
        value.name = rename(value.name)
    for note in graph.quantization_annotation:
        note.tensor_name = rename(note.tensor_name)
        for parameter in note.quant_parameter_tensor_names:
            parameter.value = rename(parameter.value)
