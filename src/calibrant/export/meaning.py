"""Logits or probabilities: what a tensor of a graph holds, by what made it and by its values.

A policy that was fitted on one of them and meets the other would accept next to nothing, or everything: that is
refused, whether the tensor was found or named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibrant.selective import Policy

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

#: Domains whose operations do what their names say.
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_PASSING = ("Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose")
_SQUASHING = ("Softmax", "Sigmoid")  # one step behind the logits
_TRANSFORMS = ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # of classifiers in the domain ai.onnx.ml


def operation(node: NodeProto | None) -> str:
    """What a node does, by its name; nothing is known of those in domains of others."""
    return node.op_type if node is not None and node.domain in _DOMAINS else ""


def check_graph(graph: GraphProto, tensor: str, policy: Policy, *, named: bool, inside: bool) -> None:
    """Raise if what made a tensor gives probabilities and the policy takes logits.

    Args:
        graph: of the model.
        tensor: the name of what the policy would take.
        policy: it.
        named: whether the user named the tensor; the outputs of a tree ensemble, which may be either, are then judged
            by their values alone.
        inside: whether the user can name tensors inside of the graph.
    """
    if policy.takes != "logits":
        return
    makers = {name: node for node in graph.node for name in node.output if name}
    maker = _maker(makers, tensor)
    if not _gives_probabilities(maker) and not (operation(maker) == "TreeEnsembleClassifier" and not named):
        return
    before = _before(makers, maker)
    ways = ["fit the policy on probabilities"]
    if before is not None and inside:
        ways.insert(0, f"name the tensor before it, {before!r}")
    elif not inside:
        ways.insert(0, "give a model that ends before it")
    raise ValueError(
        f"{tensor} comes from {operation(maker)}, which gives probabilities, but the policy was fitted on logits: "
        f"{', or '.join(ways)}"
    )


def _maker(makers: dict[str, NodeProto], tensor: str) -> NodeProto | None:
    """The node whose result a tensor holds, perhaps in another shape or type."""
    maker = makers.get(tensor)
    while operation(maker) in _PASSING:
        assert maker is not None
        maker = makers.get(maker.input[0])
    return maker


def _gives_probabilities(maker: NodeProto | None) -> bool:
    if operation(maker) in (*_SQUASHING, "Normalizer"):
        return True
    if maker is None or not operation(maker).endswith("Classifier"):
        return False
    transforms = [one.s.decode("utf-8", "replace") for one in maker.attribute if one.name == "post_transform"]
    return any(transform in _TRANSFORMS for transform in transforms)


def _before(makers: dict[str, NodeProto], maker: NodeProto | None) -> str | None:
    """The tensor that becomes probabilities, if it is one of the graph's own; a classifier's own scores are not."""
    if operation(maker) == "Normalizer":
        assert maker is not None
        maker = _maker(makers, maker.input[0])
    if maker is None or operation(maker) not in _SQUASHING:
        return None
    tensor = str(maker.input[0])
    return None if _gives_probabilities(_maker(makers, tensor)) else tensor


def check_values(rows: npt.NDArray[Any], tensor: str, policy: Policy) -> None:
    """Raise if the values of a model's output, ``[n, C]``, are not what the policy takes.

    Numbers in 0..1 that sum to 1 in every row of a check are probabilities: logits do not do that.
    """
    finite = rows[np.isfinite(rows).all(1)].astype(np.float64)
    if not len(finite):
        return
    low, high, off = float(finite.min()), float(finite.max()), float(np.abs(finite.sum(1) - 1).max())
    probable = low >= 0 and off <= 1e-2
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
