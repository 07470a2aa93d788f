"""Which tensors of an ONNX model are the logits (or probabilities) and its own label; what cannot be told is asked.

A tensor is known by its type and shape: the logits are the only output of floating point with as many columns as the
policy has classes, the model's own label is the only output of text or whole numbers with one for each row. Where
several could be meant, the error lists them, and the caller names one. Names of tensors mean nothing.

A policy that was fitted on logits and meets probabilities, or the reverse, would accept next to nothing, or everything:
that is refused, by what made the tensor and by its values, whether it was found or named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calibrant.base.arrays import Array
from calibrant.base.checks import did_you_mean, differing_names
from calibrant.export.onnx_model import TensorInfo, prune, raise_opset, tensor_info
from calibrant.policy import Policy
from calibrant.predictions import same_class

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

INPUT, LOGITS = "input", "logits"  # of graphs that PyTorch wrote for us
NO_LABEL = "none"  # says that no output is the model's own label

#: Domains whose operations do what their names say.
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_PASSING = ("Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose")
_SQUASHING = ("Softmax", "Sigmoid", "Normalizer")
_TRANSFORMS = (b"SOFTMAX", b"LOGISTIC", b"SOFTMAX_ZERO", b"PROBIT")  # of classifiers in the domain ai.onnx.ml

#: How far below 0 a probability may come out of a graph in single precision: converted forests subtract.
ROUNDING = 1e-6


class LabelOutput(NamedTuple):
    """An output with the model's own label of each row, and the model's classes in the order of its columns."""

    name: str
    classes: tuple[str, ...] | None = None  # None if the graph does not list them


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


def prepare(
    model: ModelProto, policy: Policy, output: str | None, labels: str | None, *, inside: bool = True
) -> LogitsModel:
    """Raise the opset, choose logits and label, and cut the rest off, in place.

    ``inside`` is whether tensors inside can be named: those of a graph that PyTorch wrote are nobody's.
    """
    import onnx

    model, remarks = raise_opset(model)
    graph = model.graph
    weights = {value.name for value in graph.initializer}
    for i in reversed([i for i, value in enumerate(graph.input) if value.name in weights]):
        del graph.input[i]  # before IR version 4 weights were inputs too
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # what is not known is found out by running
        inferred = graph
    infos = {value.name: tensor_info(value) for value in (*inferred.value_info, *inferred.output)}
    makers = {name: node for node in graph.node for name in node.output if name}
    names = [value.name for value in graph.output]
    # A ZipMap makes a list of dictionaries of a tensor: the tensor is taken.
    sources = {name: node.input[0] for name, node in makers.items() if _operation(node) == "ZipMap"}
    sources = {name: sources.get(name, name) for name in (*names, *makers)}
    tensors = {name: infos.get(source, TensorInfo(source, None, None)) for name, source in sources.items()}
    output = _choose_logits(names, tensors, policy, output)
    logits = tensors[output]
    _check_maker(makers, logits.name, policy, inside=inside)
    names_classes = _check_order_of_classes(graph, policy, output)
    name = choose_label([infos[name] for name in names if name != output], logits, policy, labels)
    label = None if name is None else LabelOutput(name, _listed_classes(_find_maker(makers, name), graph))
    inputs = tuple(tensor_info(value) for value in graph.input)
    kept = onnx.GraphProto()
    kept.output.extend(value for value in graph.output if value.name == name)
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


# ---------------------------------------------------------------------- which tensor


def _choose_logits(outputs: Sequence[str], tensors: Mapping[str, TensorInfo], policy: Policy, name: str | None) -> str:
    """The tensor to take: as named, or the only output of floating point with as many classes."""
    shape, described = shape_of_logits(policy), _describe(tensors[name] for name in outputs)
    if name is None:
        fitting = [name for name in outputs if tensors[name].is_floating and _can_be_logits(tensors[name], policy)]
        if not fitting:
            inside = "; a tensor inside the model is named by --tensor (in Python output=)"
            hints = (one_column_hint(policy, tensors[name].dims) for name in outputs)
            raise ValueError(
                f"no output of the model can be {shape}, which the policy takes; the outputs are "
                f"{described}{next(filter(None, hints), inside)}"
            )
        if len(fitting) > 1:
            candidates = _describe(tensors[name] for name in fitting)
            raise ValueError(f"several outputs can be {shape}: {candidates}; name one by --tensor (in Python output=)")
        name = fitting[0]
    elif name not in tensors:
        hint = did_you_mean(name, sorted(tensors))
        raise ValueError(f"the model has no output and no tensor {name!r}, its outputs are {described}{hint}")
    tensor = tensors[name]
    if not tensor.is_floating:
        raise ValueError(f"{policy.takes} must be of floating point, got {tensor}; the outputs are {described}")
    if not _can_be_logits(tensor, policy):
        hint = one_column_hint(policy, tensor.dims)
        raise ValueError(f"the policy is for {policy.kind} and takes {shape}, got {tensor}{hint}")
    return name


def choose_label(others: Sequence[TensorInfo], logits: TensorInfo, policy: Policy, name: str | None) -> str | None:
    """Which output beside the logits is the model's own label: as named, or the only one that can be, or None."""
    names = [tensor.name for tensor in others]
    if name is not None and name != NO_LABEL and name not in names:
        hint = did_you_mean(name, sorted(names))
        raise ValueError(
            f"the model has no output {name!r} beside the {policy.takes} that could be its label, it has "
            f"{_describe(others)}{hint}"
        )
    if name is not None:
        return name if name in names else None
    rank = 3 if policy.kind == "segmentation" else 1

    def is_one_for_each_row(tensor: TensorInfo) -> bool:
        dims = tensor.dims
        if dims is None:
            return True
        rows = {size for size in (dims[:1] + (logits.dims or ())[:1]) if isinstance(size, int)}
        return len(rows) < 2 and (len(dims) == rank or (len(dims) == rank + 1 and dims[1] == 1))

    fitting = [tensor for tensor in others if tensor.is_discrete and is_one_for_each_row(tensor)]
    if len(fitting) > 1:
        raise ValueError(
            f"several outputs can be the model's own label, which its {policy.takes} are checked by: "
            f"{_describe(fitting)}; name one by --labels, or none of them: --labels {NO_LABEL} (in Python labels=)"
        )
    return fitting[0].name if fitting else None


def _describe(tensors: Any) -> str:
    return ", ".join(map(str, tensors)) or "no other"


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


# ---------------------------------------------------------------------- the model's classes


def _listed_classes(maker: NodeProto | None, graph: GraphProto) -> tuple[str, ...] | None:
    """The classes that the maker of a label chooses from, as text; None if it does not list them."""
    from onnx import numpy_helper

    names = () if maker is None else _class_names(maker)
    if names or _operation(maker) != "ArrayFeatureExtractor":
        return names or None
    assert maker is not None
    chosen_from = next((values for values in graph.initializer if values.name == maker.input[0]), None)
    return None if chosen_from is None else tuple(map(as_name, numpy_helper.to_array(chosen_from).reshape(-1).tolist()))


def _class_names(node: NodeProto) -> tuple[str, ...]:
    """The names of classes that a classifier or a ZipMap carries, numbers as text; empty where it has none."""
    values = [
        value
        for attribute in node.attribute
        if attribute.name.startswith("classlabels")
        for value in (*attribute.strings, *attribute.ints)
    ]
    return tuple(map(as_name, values))


def as_name(value: Any) -> str:
    """A class as text: bytes decoded, and whole numbers without a point."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _check_order_of_classes(graph: GraphProto, policy: Policy, output: str) -> bool:
    """Raise if the model has its classes in another order; whether the graph names them at all.

    Lists of other names may be about something else, but for that of a ZipMap whose values are the ``output``.
    """
    import onnx

    if policy.class_names is None:
        return False
    classes = list(policy.class_names)
    lists = [(_class_names(node), _operation(node) == "ZipMap" and output in node.output) for node in graph.node]
    texts = (tensor.string_data for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.STRING)
    lists += [(tuple(map(as_name, text)), False) for text in texts]
    names_classes = False
    for names, is_of_output in lists:
        meant = [same_class(name, classes) for name in names]  # truth values may be 0 and 1, as exporters write them
        if meant == classes:
            names_classes = True
        elif names and (is_of_output or sorted(map(str, meant)) == sorted(classes)):
            model_names, policy_names = differing_names(names, classes)
            raise ValueError(
                f"the model's classes are {model_names}, the policy's {policy_names}: they must be the same, in the "
                "same order"
            )
    return names_classes


# ---------------------------------------------------------------------- logits or probabilities


def _operation(node: NodeProto | None) -> str:
    """What a node does, by its name; nothing is known of those in domains of others."""
    return node.op_type if node is not None and node.domain in _DOMAINS else ""


def _find_maker(makers: Mapping[str, NodeProto], tensor: str) -> NodeProto | None:
    """The node whose result a tensor holds, perhaps in another shape or type."""
    maker = makers.get(tensor)
    while _operation(maker) in _PASSING:
        maker = makers.get(maker.input[0])  # type: ignore[union-attr]
    return maker


def _check_maker(makers: Mapping[str, NodeProto], tensor: str, policy: Policy, *, inside: bool) -> None:
    """Raise if what made a tensor gives probabilities and the policy takes logits.

    The outputs of a tree ensemble may be either, those of a forest or of boosting: they are judged by their values.
    """
    if policy.takes != "logits":
        return
    squashing, logits = "", None  # what made the probabilities, and of which tensor
    maker = _find_maker(makers, tensor)
    while maker is not None and _operation(maker) in _SQUASHING:
        squashing, logits = squashing or maker.op_type, str(maker.input[0])
        maker = _find_maker(makers, logits)
    if _operation(maker).endswith("Classifier"):
        assert maker is not None
        if any(fact.name == "post_transform" and fact.s in _TRANSFORMS for fact in maker.attribute):
            squashing = squashing or maker.op_type
        logits = None  # its scores are not in the graph
    if not squashing:
        return
    ways = ["fit the policy on probabilities"]
    if logits in makers and inside:
        ways.insert(0, f"name the tensor before it, --tensor {logits!r}")
    elif not inside:
        ways.insert(0, "give a model that ends before it")
    raise ValueError(
        f"{tensor} comes from {squashing}, which gives probabilities, but the policy was fitted on logits: "
        f"{', or '.join(ways)}"
    )


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
            f"in all {len(finite):,} rows of the check; name the tensor with the logits (--tensor), or fit the policy "
            "on probabilities"
        )
