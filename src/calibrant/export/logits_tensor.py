"""Which tensor of an ONNX model holds what the policy takes, logits or probabilities, and the model cut behind it.

A policy that was fitted on one of them and meets the other would accept next to nothing, or everything: that is
refused, by what made the tensor and by its values, whether it was found or named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.base.arrays import Array
from calibrant.base.checks import did_you_mean, differing_names
from calibrant.export.label_output import LabelOutput, is_label, listed_classes
from calibrant.export.onnx_model import OLDEST, brief, check, subgraphs
from calibrant.policy import Policy
from calibrant.predictions import same_class

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Dims = tuple[int | str | None, ...]

INPUT, LOGITS = "input", "logits"  # of graphs that PyTorch wrote for us

#: Domains whose operations do what their names say.
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_PASSING = ("Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose")
_SQUASHING = ("Softmax", "Sigmoid")  # one step behind the logits
_TRANSFORMS = ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # of classifiers in the domain ai.onnx.ml


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
    def is_floating(self) -> bool:
        """Whether it may hold logits by its type."""
        return self.kind in (None, "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")


@dataclass(frozen=True)
class LogitsModel:
    """A model whose outputs are the logits and perhaps its own label, and what there is to say about it."""

    model: ModelProto
    logits: TensorInfo
    inputs: tuple[TensorInfo, ...]
    opset: int
    remarks: list[str] = field(default_factory=list)
    label: LabelOutput | None = None
    names_classes: bool = False  # whether the model names its classes, in the policy's order


def prepare(model: ModelProto, policy: Policy, output: str | None, *, inside: bool = True) -> LogitsModel:
    """Raise the opset, choose the output and cut, in place; ``inside``: whether tensors inside can be named."""
    import onnx

    model, remarks = _raise_opset(model)
    graph = model.graph
    weights = {value.name for value in graph.initializer}
    for i in reversed([i for i, value in enumerate(graph.input) if value.name in weights]):
        del graph.input[i]  # before IR version 4 weights were inputs too
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # what is not known is found out by running
        inferred = graph
    logits = _choose_tensor(graph, inferred, policy, output)
    if not _can_be_logits(logits, policy):
        hint = one_column_hint(policy, logits.dims)
        raise ValueError(f"the policy is for {policy.kind} and takes {shape_of_logits(policy)}, got {logits}{hint}")
    _check_maker(graph, logits.name, policy, inside=inside)
    names_classes = _check_order_of_classes(graph, policy)
    inputs = tuple(_tensor_info(value) for value in graph.input)
    label, kept = _find_label(graph, inferred, policy, logits.name), onnx.GraphProto()
    kept.output.extend(value for value in graph.output if label is not None and value.name == label.name)
    del graph.output[:]
    if logits.kind:
        kind = onnx.TensorProto.DataType.Value(logits.kind)
        graph.output.append(onnx.helper.make_tensor_value_info(logits.name, kind, logits.dims))
    else:
        graph.output.append(onnx.ValueInfoProto(name=logits.name))
    graph.output.extend(kept.output)
    prune(graph)
    model.ir_version = max(model.ir_version, onnx.helper.find_min_ir_version_for(model.opset_import, True))
    opset = int(next(entry.version for entry in model.opset_import if not entry.domain))
    return LogitsModel(model, logits, inputs, opset, remarks, label, names_classes)


def _raise_opset(model: ModelProto) -> tuple[ModelProto, list[str]]:
    """The model with an opset of at least `OLDEST`, and one import for each domain."""
    import onnx

    latest: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        latest[domain] = max(latest.get(domain, 0), entry.version)
    opset = latest.setdefault("", OLDEST)
    del model.opset_import[:]
    model.opset_import.extend(onnx.helper.make_opsetid(*pair) for pair in latest.items())
    if opset >= OLDEST:
        return model, []
    try:
        raised = onnx.version_converter.convert_version(model, OLDEST)
        check(raised)
    except Exception as error:
        requirement = f"a policy needs opset {OLDEST} or later"
        raise ValueError(
            f"the model has opset {opset}, {requirement}, and it cannot be raised ({brief(error)})"
        ) from None
    return raised, [f"The model's opset was raised from {opset} to {OLDEST}."]


def prune(graph: GraphProto) -> None:
    """Drop nodes and weights that the outputs do not need; a ZipMap goes this way too."""
    needed = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed |= _names_read(node)
    for i in reversed(range(len(graph.node))):
        if not needed.intersection(graph.node[i].output):
            del graph.node[i]
    for values in (graph.initializer, graph.value_info, graph.sparse_initializer):
        for i in reversed(range(len(values))):
            value = values[i].values if values is graph.sparse_initializer else values[i]
            if value.name not in needed:
                del values[i]


def _names_read(node: NodeProto) -> set[str]:
    """Names that a node reads, those inside its branches and loops included."""
    names = set(node.input)
    for inner in subgraphs(node):
        names.update(value.name for value in inner.output)
        names.update(*map(_names_read, inner.node))
    return names


def _tensor_info(value: Any) -> TensorInfo:
    import onnx

    kind_name = value.type.WhichOneof("value")
    if kind_name != "tensor_type":
        return TensorInfo(value.name, None if kind_name is None else kind_name.removesuffix("_type"), None)
    tensor = value.type.tensor_type
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    kind = names.get(tensor.elem_type, "of no known type") if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return TensorInfo(value.name, kind, None)
    # Some exporters write -1 or 0 for what is not fixed, and a name that is no text comes as bytes.
    dims = (d.dim_value if d.dim_value > 0 else d.dim_param or None for d in tensor.shape.dim)
    return TensorInfo(value.name, kind, tuple(d if isinstance(d, int | str) else None for d in dims))


# ---------------------------------------------------------------------- which tensor


def _choose_tensor(graph: GraphProto, inferred: GraphProto, policy: Policy, output: str | None) -> TensorInfo:
    """The tensor to take: as named, or the only floating-point output with as many classes."""
    infos = {value.name: _tensor_info(value) for value in (*inferred.value_info, *inferred.output)}
    # A ZipMap makes a list of dictionaries of a tensor: the tensor is taken.
    zipmaps = {node.output[0]: node for node in graph.node if _operation(node) == "ZipMap"}
    outputs = [value.name for value in graph.output]
    described = ", ".join(str(infos[name]) for name in outputs)

    def tensor(name: str) -> TensorInfo:
        source = zipmaps[name].input[0] if name in zipmaps else name
        return infos.get(source, TensorInfo(source, None, None))

    if output is None:
        fitting = [name for name in outputs if tensor(name).is_floating and _can_be_logits(tensor(name), policy)]
        shape = shape_of_logits(policy)
        if not fitting:
            hint = next(filter(None, (one_column_hint(policy, tensor(name).dims) for name in outputs)), "")
            raise ValueError(
                f"no output of the model can be {shape}, which the policy takes; the outputs are {described}{hint}"
            )
        if len(fitting) > 1:
            listed = ", ".join(fitting)
            raise ValueError(f"several outputs can be {shape}: name one of {listed}; the outputs are {described}")
        output = fitting[0]
    else:
        results = {name for node in graph.node for name in node.output if name}
        if output not in outputs and output not in results:
            hint = did_you_mean(output, sorted(results))
            raise ValueError(f"the model has no output and no tensor {output!r}, its outputs are {described}{hint}")
    if output in zipmaps and policy.class_names is not None:
        for names in _class_names([zipmaps[output]]):
            if names and not _are_same(names, policy.class_names):
                model_names, policy_names = differing_names(names, policy.class_names)
                requirement = "they must be the same, in order"
                raise ValueError(f"the model's classes are {model_names}, the policy's {policy_names}: {requirement}")
    if not tensor(output).is_floating:
        raise ValueError(f"{policy.takes} must be of floating point, got {tensor(output)}; the outputs are {described}")
    return tensor(output)


def shape_of_logits(policy: Policy) -> str:
    """What a policy takes, for a message."""
    return f"{policy.takes} [N, {policy.num_classes}" + (", H, W]" if policy.kind == "segmentation" else "]")


def one_column_hint(policy: Policy, dims: Sequence[Any] | None) -> str:
    """How a model with one number for two classes comes to give both; nothing where that is not what it has."""
    if policy.num_classes != 2 or dims is None or not (len(dims) == 1 or (len(dims) == 2 and dims[1] == 1)):
        return ""
    column = ("p" if policy.takes == "probabilities" else "z") + ("" if len(dims) == 2 else "[:, None]")
    pair = (f"1 - {column}" if policy.takes == "probabilities" else f"torch.zeros_like({column})", column)
    names = "" if policy.class_names is None else f", {policy.class_names[0]} and {policy.class_names[1]}"
    ending = f"torch.cat([{', '.join(pair[::-1] if policy.positive == 0 else pair)}], 1)"
    needed = f": it gives one column, and the graph needs both classes{names}"
    return f"{needed}: end the model in {ending}, or the same in ONNX"


def has_rank(policy: Policy, rank: int) -> bool:
    """Whether values of this rank may be what a policy takes."""
    return rank > 2 if policy.kind == "segmentation" else rank == 2


def _can_be_logits(tensor: TensorInfo, policy: Policy) -> bool:
    """Whether nothing known about a tensor speaks against its being the logits."""
    dims = tensor.dims
    if dims is None:
        return True
    return has_rank(policy, len(dims)) and (not isinstance(dims[1], int) or dims[1] == policy.num_classes)


def _find_label(graph: GraphProto, inferred: GraphProto, policy: Policy, logits: str) -> LabelOutput | None:
    """The output that is the model's own label, if it has one."""
    infos = {value.name: _tensor_info(value) for value in inferred.output}
    makers = {name: node for node in graph.node for name in node.output if name}
    ranks = (3, 4) if policy.kind == "segmentation" else (1, 2)  # the longer with one column
    for value in graph.output:
        info, maker = infos[value.name], _find_maker(makers, value.name)
        dims = info.dims
        fits = dims is None or len(dims) == ranks[0] or (len(dims) == ranks[1] and dims[1] == 1)
        if value.name != logits and fits and is_label(info.kind, value.name, _operation(maker)):
            return LabelOutput(value.name, listed_classes(maker, graph))
    return None


def _class_names(nodes: Any) -> list[tuple[str, ...]]:
    """The names of classes that classifiers and ZipMaps carry, numbers as text."""
    return [
        tuple(name.decode("utf-8", "replace") for name in attribute.strings) or tuple(map(str, attribute.ints))
        for node in nodes
        for attribute in node.attribute
        if attribute.name.startswith("classlabels")
    ]


def _are_same(names: Sequence[str], classes: Sequence[str]) -> bool:
    """Whether a model's classes are the policy's, in order; truth values may be 0 and 1, as exporters write them."""
    return [same_class(name, classes) for name in names] == list(classes)


def _check_order_of_classes(graph: GraphProto, policy: Policy) -> bool:
    """Raise if a classifier's own labels are in another order; whether the graph names its classes at all."""
    import onnx

    if policy.class_names is None:
        return False
    texts = [tensor.string_data for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.STRING]
    orders = _class_names(graph.node) + [tuple(value.decode("utf-8", "replace") for value in text) for text in texts]
    meant = [tuple(same_class(name, policy.class_names) for name in names) for names in orders]
    orders = [names for names, ours in zip(orders, meant, strict=True) if sorted(ours) == sorted(policy.class_names)]
    for names in orders:
        if not _are_same(names, policy.class_names):
            model_names, policy_names = differing_names(names, policy.class_names)
            raise ValueError(
                f"the model's classes are {model_names}, the policy's {policy_names}: they must be in the same order"
            )
    return bool(orders)


# ---------------------------------------------------------------------- logits or probabilities


def _operation(node: NodeProto | None) -> str:
    """What a node does, by its name; nothing is known of those in domains of others."""
    return node.op_type if node is not None and node.domain in _DOMAINS else ""


def _check_maker(graph: GraphProto, tensor: str, policy: Policy, *, inside: bool) -> None:
    """Raise if what made a tensor gives probabilities and the policy takes logits.

    The outputs of a tree ensemble may be either, those of a forest or of boosting: they are judged by their values.
    """
    if policy.takes != "logits":
        return
    makers = {name: node for node in graph.node for name in node.output if name}
    maker = _find_maker(makers, tensor)
    if not _gives_probabilities(maker):
        return
    before = _tensor_before(makers, maker)
    ways = ["fit the policy on probabilities"]
    if before is not None and inside:
        ways.insert(0, f"name the tensor before it, {before!r}")
    elif not inside:
        ways.insert(0, "give a model that ends before it")
    raise ValueError(
        f"{tensor} comes from {_operation(maker)}, which gives probabilities, but the policy was fitted on logits: "
        f"{', or '.join(ways)}"
    )


def _find_maker(makers: dict[str, NodeProto], tensor: str) -> NodeProto | None:
    """The node whose result a tensor holds, perhaps in another shape or type."""
    maker = makers.get(tensor)
    while maker is not None and _operation(maker) in _PASSING:
        maker = makers.get(maker.input[0])
    return maker


def _gives_probabilities(maker: NodeProto | None) -> bool:
    if _operation(maker) in (*_SQUASHING, "Normalizer"):
        return True
    if maker is None or not _operation(maker).endswith("Classifier"):
        return False
    transforms = [fact.s.decode("utf-8", "replace") for fact in maker.attribute if fact.name == "post_transform"]
    return any(transform in _TRANSFORMS for transform in transforms)


def _tensor_before(makers: dict[str, NodeProto], maker: NodeProto | None) -> str | None:
    """The tensor that becomes probabilities, if it is one of the graph's own; a classifier's own scores are not."""
    if maker is not None and _operation(maker) == "Normalizer":
        maker = _find_maker(makers, maker.input[0])
    if maker is None or _operation(maker) not in _SQUASHING:
        return None
    tensor = str(maker.input[0])
    return None if _gives_probabilities(_find_maker(makers, tensor)) else tensor


#: How far below 0 a probability may come out of a graph in single precision: converted forests subtract.
ROUNDING = 1e-6


def check_values(rows: Array, tensor: str, policy: Policy) -> None:
    """Raise if the values of a model's output, ``[n, C]`` float64, are not what the policy takes.

    Numbers in 0..1 that sum to 1 in every row of a check are probabilities: logits do not do that.
    """
    finite = rows[np.isfinite(rows).all(1)]
    if not len(finite):
        return
    low, high, off = float(finite.min()), float(finite.max()), float(np.abs(finite.sum(1) - 1).max())
    probable = low >= -ROUNDING and off <= 1e-2
    if policy.takes == "probabilities" and not probable:
        raise ValueError(
            f"the policy takes probabilities, in 0..1 and summing to 1 over the classes, but {tensor} has "
            f"values from {low:.4g} to {high:.4g} with sums off by up to {off:.4g}"
        )
    if policy.takes == "logits" and probable:
        raise ValueError(
            f"the policy was fitted on logits, but {tensor} holds probabilities: its values lie in 0..1 and sum to 1 "
            f"in all {len(finite):,} rows of the check; name the tensor with the logits, or fit the policy on "
            "probabilities"
        )
