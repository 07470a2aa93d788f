"""Existing ONNX models: raised to a usable opset, cut at the tensor that holds the logits."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from calibrant._validation import differing_names
from calibrant.export.graph import OLDEST
from calibrant.export.meaning import check_graph, operation
from calibrant.export.model_file import brief, check
from calibrant.export.surgery import prune
from calibrant.selective import Policy

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Dims = tuple[int | str | None, ...]

INPUT, LOGITS = "input", "logits"  # of graphs that PyTorch wrote for us


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a graph: name, type by its name in ONNX, and dimensions; None where something is not known."""

    name: str
    kind: str | None
    dims: Dims | None

    def __str__(self) -> str:
        shape = "" if self.dims is None else f" [{', '.join('?' if d is None else str(d) for d in self.dims)}]"
        return f"{self.name} ({self.kind or 'of unknown type'}{shape})"

    @property
    def floating(self) -> bool:
        """Whether it may hold logits by its type."""
        return self.kind in (None, "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")


@dataclass(frozen=True)
class Source:
    """A model whose only output is the logits, and what there is to say about it."""

    model: ModelProto
    logits: TensorInfo
    inputs: tuple[TensorInfo, ...]
    opset: int
    remarks: list[str] = field(default_factory=list)


def prepare(model: ModelProto, policy: Policy, output: str | None, *, inside: bool = True) -> Source:
    """Raise, choose the output, cut; the model is changed. ``inside`` says whether tensors inside can be named."""
    import onnx

    model, remarks = _raised(model)
    opset = _opset(model)
    graph = model.graph
    weights = {one.name for one in graph.initializer}
    for i in reversed([i for i, one in enumerate(graph.input) if one.name in weights]):
        del graph.input[i]  # before IR version 4 weights were inputs too
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # what is not known is found out by running
        inferred = graph
    logits = _chosen(graph, inferred, policy, output)
    _check_shape(logits, policy)
    check_graph(graph, logits.name, policy, named=output is not None, inside=inside)
    remarks += _order_of_classes(graph, policy)
    inputs = tuple(_tensor(one) for one in graph.input)
    del graph.output[:]
    kind = onnx.TensorProto.DataType.Value(logits.kind) if logits.kind else 0
    found = onnx.helper.make_tensor_value_info(logits.name, kind, logits.dims) if kind else None
    graph.output.append(found or onnx.ValueInfoProto(name=logits.name))
    prune(graph)
    model.ir_version = max(model.ir_version, onnx.helper.find_min_ir_version_for(model.opset_import, True))
    return Source(model, logits, inputs, opset, remarks)


def _raised(model: ModelProto) -> tuple[ModelProto, list[str]]:
    """The model with an opset of at least `OLDEST`, and one import for each domain."""
    import onnx

    latest: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        latest[domain] = max(latest.get(domain, 0), entry.version)
    latest.setdefault("", OLDEST)
    del model.opset_import[:]
    model.opset_import.extend(onnx.helper.make_opsetid(*pair) for pair in latest.items())
    opset = latest[""]
    if opset >= OLDEST:
        return model, []
    try:
        raised = onnx.version_converter.convert_version(model, OLDEST)
        check(raised)
    except Exception as error:
        asked = f"a policy needs opset {OLDEST} or later"
        raise ValueError(f"the model has opset {opset}, {asked}, and it cannot be raised ({brief(error)})") from None
    return raised, [f"The model's opset was raised from {opset} to {OLDEST}."]


def _opset(model: ModelProto) -> int:
    return int(next(entry.version for entry in model.opset_import if not entry.domain))


# ---------------------------------------------------------------------- which tensor


def _chosen(graph: GraphProto, inferred: GraphProto, policy: Policy, wanted: str | None) -> TensorInfo:
    """The tensor to take: as named, or the only floating-point output with as many classes."""
    known = {one.name: _tensor(one) for one in (*inferred.value_info, *inferred.output)}
    zipped = {node.output[0]: node for node in graph.node if operation(node) == "ZipMap"}
    # A ZipMap makes a list of dictionaries of a tensor: the tensor is wanted.
    outputs = {one.name: zipped[one.name].input[0] if one.name in zipped else one.name for one in graph.output}
    described = ", ".join(str(known[one.name]) for one in graph.output)
    if wanted is not None:
        made = {name for node in graph.node for name in node.output if name}
        if wanted not in outputs and wanted not in made:
            near = difflib.get_close_matches(wanted, sorted(made), 3)
            hint = f"; tensors inside with names like it: {', '.join(near)}" if near else ""
            raise ValueError(f"the model has no output and no tensor {wanted!r}, its outputs are {described}{hint}")
        name = zipped[wanted].input[0] if wanted in zipped else wanted
        _check_names(zipped.get(wanted), policy)
        found = known.get(name, TensorInfo(name, None, None))
        if not found.floating:
            raise ValueError(f"{policy.takes} must be of floating point, got {found}; the outputs are {described}")
        return found
    floating = {name: known.get(inside, TensorInfo(inside, None, None)) for name, inside in outputs.items()}
    floating = {name: one for name, one in floating.items() if one.floating}
    fitting = {name: one for name, one in floating.items() if _fits(one, policy)}
    if len(fitting) == 1:
        name, found = next(iter(fitting.items()))
        _check_names(zipped.get(name), policy)
        return found
    asked = f"{policy.takes} {_asked(policy)}"
    if not fitting:
        raise ValueError(f"no output of the model can be {asked}, which the policy takes; the outputs are {described}")
    several = ", ".join(fitting)
    raise ValueError(f"several outputs can be {asked}: name one of {several}; the outputs are {described}")


def _asked(policy: Policy) -> str:
    return f"[N, {policy.num_classes}" + (", H, W]" if policy.kind == "segmentation" else "]")


def _fits(one: TensorInfo, policy: Policy) -> bool:
    """Whether nothing known about a tensor speaks against its being the logits."""
    if one.dims is None:
        return True
    rank = len(one.dims) > 2 if policy.kind == "segmentation" else len(one.dims) == 2
    return rank and (not isinstance(one.dims[1], int) or one.dims[1] == policy.num_classes)


def _check_shape(logits: TensorInfo, policy: Policy) -> None:
    if not _fits(logits, policy):
        raise ValueError(f"the policy is for {policy.kind} and takes {policy.takes} {_asked(policy)}, got {logits}")


def _check_names(node: NodeProto | None, policy: Policy) -> None:
    """A ZipMap knows the names of the classes: they must be the policy's."""
    if node is None or policy.class_names is None:
        return
    for attribute in node.attribute:
        names = tuple(name.decode("utf-8", "replace") for name in attribute.strings)
        if attribute.name == "classlabels_strings" and names and names != policy.class_names:
            theirs, ours = differing_names(names, policy.class_names)
            raise ValueError(f"the model's classes are {theirs}, the policy's {ours}: they must be the same, in order")


def _order_of_classes(graph: GraphProto, policy: Policy) -> list[str]:
    """What a classifier's own labels, wherever the graph keeps them, tell about the order of the classes."""
    import onnx

    if policy.class_names is None:
        return []
    told = [
        tuple(name.decode("utf-8", "replace") for name in attribute.strings)
        for node in graph.node
        for attribute in node.attribute
        if attribute.name == "classlabels_strings"
    ]
    texts = [one for one in graph.initializer if one.data_type == onnx.TensorProto.STRING]
    told += [tuple(value.decode("utf-8", "replace") for value in one.string_data) for one in texts]
    told = [names for names in told if sorted(names) == sorted(policy.class_names)]
    if any(names != policy.class_names for names in told):
        other = next(names for names in told if names != policy.class_names)
        theirs, ours = differing_names(other, policy.class_names)
        raise ValueError(f"the model's classes are {theirs}, the policy's {ours}: they must be in the same order")
    if told:
        return []
    ours = ", ".join(policy.class_names[:5]) + (", ..." if len(policy.class_names) > 5 else "")
    return [f"The model does not name its classes: they must be in the policy's order, {ours}."]


def _tensor(info: Any) -> TensorInfo:
    """Name, type and dimensions of a ValueInfoProto."""
    import onnx

    which = info.type.WhichOneof("value")
    if which != "tensor_type":
        return TensorInfo(info.name, None if which is None else which.removesuffix("_type"), None)
    tensor = info.type.tensor_type
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    kind = names.get(tensor.elem_type, "of no known type") if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return TensorInfo(info.name, kind, None)
    # Some exporters write -1 or 0 for what is not fixed.
    dims = (d.dim_value if d.dim_value > 0 else d.dim_param or None for d in tensor.shape.dim)
    # A name that is no text comes as bytes.
    return TensorInfo(info.name, kind, tuple(d if isinstance(d, int | str) else None for d in dims))
