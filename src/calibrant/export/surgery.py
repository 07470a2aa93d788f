"""Changes to graphs: what is not needed goes, names get a prefix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def prune(graph: GraphProto) -> None:
    """Drop nodes and weights that the outputs do not need; a ZipMap goes this way too."""
    needed = {one.name for one in graph.output}
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed |= _used([node])
    for i in reversed(range(len(graph.node))):
        if not needed.intersection(graph.node[i].output):
            del graph.node[i]
    for entries in (graph.initializer, graph.value_info):
        for i in reversed(range(len(entries))):
            if entries[i].name not in needed:
                del entries[i]
    for i in reversed(range(len(graph.sparse_initializer))):
        if graph.sparse_initializer[i].values.name not in needed:
            del graph.sparse_initializer[i]


def prefixed(graph: GraphProto, prefix: str, kept: frozenset[str]) -> None:
    """Put a prefix before every name but those to keep, inside branches and loops too."""

    def renamed(name: str) -> str:
        return name if not name or name in kept else prefix + name

    for node in graph.node:
        node.name = prefix + node.name if node.name else ""
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                prefixed(inner, prefix, kept)
    sparse = (one.values for one in graph.sparse_initializer)
    for entry in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *sparse):
        entry.name = renamed(entry.name)
    for note in graph.quantization_annotation:
        note.tensor_name = renamed(note.tensor_name)
        for parameter in note.quant_parameter_tensor_names:
            parameter.value = renamed(parameter.value)


def _used(nodes: Iterable[NodeProto]) -> set[str]:
    """Names that nodes read, those inside their branches and loops included."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found |= _used(inner.node)
                found.update(one.name for one in inner.output)
    return found
