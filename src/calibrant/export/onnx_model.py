"""ONNX models of others, read and run with care.

A file's weights are taken in, and nothing outside the model's folder is touched. onnxruntime runs on the CPU in bounded
time and memory: a stranger's model may loop for ever, or ask for all there is.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.base.arrays import Array, threads
from calibrant.base.files import open_regular, read_regular

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

LARGEST = 2**31 - 2**20  # bytes of a model in one file, with room for what is added
MARK = "calibrant.policy"
OLDEST = 13  # opset that a policy is drawn in
LONGEST = 300.0  # seconds that a model may take for a batch of the check

Feeds = dict[str, Array]
Runner = Callable[[Feeds], list[Array]]


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a graph: name, type by its name in ONNX, and dimensions; None where something is not known."""

    name: str
    kind: str | None
    dims: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        shape = "" if self.dims is None else f" [{', '.join('?' if d is None else str(d) for d in self.dims)}]"
        return f"{self.name} ({self.kind or 'of unknown type'}{shape})"

    @property
    def is_floating(self) -> bool:
        """Whether it may hold logits by its type."""
        return self.kind in (None, "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")

    @property
    def is_discrete(self) -> bool:
        """Whether it may hold labels by its type: text or whole numbers."""
        return (self.kind or "").removeprefix("U") in ("STRING", "INT64", "INT32", "INT16", "INT8")


def newest_opset() -> int:
    """The newest opset that the installed onnx knows."""
    import onnx

    return int(onnx.defs.onnx_opset_version())


def read(source: str | Path | ModelProto) -> ModelProto:
    """A checked model of a file or of a ModelProto, weights included; the source is not changed."""
    import onnx

    if isinstance(source, onnx.ModelProto):
        model, title = onnx.ModelProto(), "the ONNX model"
        model.CopyFrom(source)
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _tensors(model)):
            raise ValueError(f"{title} keeps weights in another file: give the path of its .onnx file instead")
    else:
        path = Path(source)
        title = str(path)
        if not path.exists():
            raise ValueError(f"{path}: there is no such file")
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path}: models over 2 GB cannot be extended, this one has {_size(path.stat().st_size)}")
        data = read_regular(path, LARGEST)
        try:
            model = onnx.load_model_from_string(data, format="protobuf")
        except Exception as error:  # protobuf has its own classes
            raise ValueError(f"{path}: not an ONNX file, or an incomplete one ({brief(error)})") from None
        _load_weights(model, path)
    _check_dense_sizes(model, title)
    _check_text(model.graph, title)
    try:
        check(model)
    except Exception as error:
        raise ValueError(f"{title}: not a valid ONNX model ({brief(error)})") from None
    if any(entry.key == MARK for entry in model.metadata_props):
        raise ValueError(f"{title}: has a policy already, extend the model it was made from")
    return model


def check(model: ModelProto) -> None:
    """onnx's own check, but inputs and outputs may do without a shape: onnxruntime does not ask for it either."""
    import onnx

    types = [value.type.tensor_type for value in (*model.graph.input, *model.graph.output)]
    shapeless = [tensor for tensor in types if tensor.elem_type and not tensor.HasField("shape")]
    for tensor in shapeless:
        tensor.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    finally:
        for tensor in shapeless:
            tensor.ClearField("shape")


def raise_opset(model: ModelProto) -> tuple[ModelProto, list[str]]:
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


def tensor_info(value: Any) -> TensorInfo:
    """What a graph says about an input, an output or a tensor inside."""
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


def _check_dense_sizes(model: ModelProto, title: str) -> None:
    """Raise if sparse weights claim more room than a model may have: onnxruntime makes them dense."""
    for sparse in model.graph.sparse_initializer:
        shape = [int(length) for length in sparse.dims]
        if 8 * math.prod(max(0, length) for length in shape) > LARGEST:  # 8 bytes have the largest numbers
            name = sparse.values.name
            raise ValueError(f"{title}: the sparse weights {name} {shape[:8]} have over 2 GB when filled")


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The branches and loops of a node."""
    return [
        graph
        for attribute in node.attribute
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
    ]


def named_values(graph: GraphProto) -> list[Any]:
    """Whatever in a graph has a name, besides its nodes."""
    sparse = (weights.values for weights in graph.sparse_initializer)
    return [*graph.input, *graph.output, *graph.value_info, *graph.initializer, *sparse]


def _check_text(graph: GraphProto, title: str) -> None:
    """Raise if a name in a graph, or in its branches and loops, is no text: protobuf gives it as bytes."""
    names = [entry.name for entry in named_values(graph)]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        for inner in subgraphs(node):
            _check_text(inner, title)
    odd = [name for name in names if isinstance(name, bytes)]
    if odd:
        raise ValueError(f"{title}: names in a model must be UTF-8, got {odd[0][:60]!r}")


def _load_weights(model: ModelProto, path: Path) -> None:
    """Read weights kept in files of their own, which must lie in the model's folder."""
    import onnx

    outside = [tensor for tensor in _tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    size, parts = model.ByteSize(), []
    for tensor in outside:
        file, offset, length = _part(tensor, path)
        size += length
        parts.append((tensor, file, offset, length))
    if size > LARGEST:
        raise ValueError(f"{path}: models over 2 GB cannot be extended, this one has {_size(size)} with its weights")
    for tensor, file, offset, length in parts:
        with open_regular(file) as opened:
            opened.seek(offset)
            tensor.raw_data = opened.read(length)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _part(tensor: TensorProto, path: Path) -> tuple[Path, int, int]:
    """The file that holds a tensor's weights, and where in it they are: offset and length."""
    facts = {entry.key: entry.value for entry in tensor.external_data}
    location, folder = facts.get("location", ""), path.resolve().parent
    try:
        file = (folder / location).resolve()
        exists = file.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, links in a circle
        raise ValueError(f"{path}: weights must lie in a file beside it, got {location[:60]!r}") from None
    if not location or not file.is_relative_to(folder):
        raise ValueError(f"{path}: weights must lie in the model's folder, {tensor.name} is in {location!r}")
    if not exists:
        raise ValueError(f"{path}: {location!r}, which holds its weights, is not beside it")
    size = os.stat(file).st_size
    numbers = [facts.get("offset", "0"), facts.get("length", "")]
    if not all(text.isascii() and text.isdecimal() and len(text) < 20 for text in numbers if text):
        raise ValueError(f"{path}: offset and length of {tensor.name} must be whole numbers, got {numbers}")
    offset = int(numbers[0] or 0)
    length = int(numbers[1]) if numbers[1] else max(0, size - offset)
    if offset + length > size:
        raise ValueError(f"{path}: {tensor.name} lies beyond the end of {location!r}, which has {size:,} bytes")
    return file, offset, length


def _tensors(model: ModelProto) -> Iterable[Any]:
    from onnx.external_data_helper import _get_all_tensors

    return _get_all_tensors(model)


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB"


def brief(error: BaseException, most: int = 200) -> str:
    """The gist of another library's message, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."


def make_runner(model: ModelProto, title: str) -> Runner:
    """A model in onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads()
    if _limit_memory():
        options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints some of its errors, before it tries again
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
    except Exception as error:
        raise ValueError(f"onnxruntime cannot load {title} ({brief(error)})") from None

    def run(feeds: Feeds) -> list[Array]:
        settings = onnxruntime.RunOptions()
        stop = threading.Timer(LONGEST, functools.partial(setattr, settings, "terminate", True))
        stop.daemon = True
        stop.start()
        try:
            return list(session.run(None, feeds, settings))
        except Exception as error:
            if settings.terminate:
                raise ValueError(f"onnxruntime cannot run {title}: a batch takes over {LONGEST:g} seconds") from None
            reason = brief(error)
            if "BFCArena" in str(error) or "llocate memory" in str(error) or isinstance(error, MemoryError):
                reason = f"it needs more memory than the {most_memory() / 2**30:.1f} GB it may take"
            raise ValueError(f"onnxruntime cannot run {title} ({reason})") from None
        finally:
            stop.cancel()

    return run


def most_memory() -> int:
    """Bytes that a model may take: half of what the machine has."""
    return max(2**30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


@functools.cache
def _limit_memory() -> bool:
    """Limit what onnxruntime takes in this process, once; False where it cannot be, or somebody else has done so."""
    import onnxruntime

    try:
        arena, default = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
        memory = onnxruntime.OrtMemoryInfo("Cpu", arena, 0, default)
        onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg({"max_mem": most_memory()}))
    except Exception:  # onnxruntime has its own classes
        return False
    return True
