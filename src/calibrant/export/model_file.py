"""ONNX files of others: read with care, weights included; nothing outside the model's folder is touched."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant._files import open_regular, read_regular

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

LARGEST = 2**31 - 2**20  # bytes of a model in one file, with room for what is added
MARK = "calibrant.policy"


def read(given: str | Path | ModelProto) -> ModelProto:
    """A checked model of a file or of a ModelProto, weights included; the one given is not changed."""
    import onnx

    if isinstance(given, onnx.ModelProto):
        model, where = onnx.ModelProto(), "the ONNX model"
        model.CopyFrom(given)
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _tensors(model)):
            raise ValueError(f"{where} keeps weights in another file: give the path of its .onnx file instead")
    else:
        path = Path(given)
        where = str(path)
        if not path.exists():
            raise ValueError(f"{path}: there is no such file")
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path}: models over 2 GB cannot be extended, this one has {_size(path.stat().st_size)}")
        data = read_regular(path, LARGEST)
        try:
            model = onnx.load_model_from_string(data, format="protobuf")
        except Exception as error:  # protobuf has its own classes
            raise ValueError(f"{path}: not an ONNX file, or a part of one ({brief(error)})") from None
        _load_weights(model, path)
    _check_dense_sizes(model, where)
    _check_text(model.graph, where)
    try:
        check(model)
    except Exception as error:
        raise ValueError(f"{where}: not a valid ONNX model ({brief(error)})") from None
    if any(entry.key == MARK for entry in model.metadata_props):
        raise ValueError(f"{where}: has a policy already, extend the model it was made from")
    return model


def check(model: ModelProto) -> None:
    """onnx's own check, but inputs and outputs may do without a shape: onnxruntime does not ask for it either."""
    import onnx

    types = [one.type.tensor_type for one in (*model.graph.input, *model.graph.output)]
    shapeless = [one for one in types if one.elem_type and not one.HasField("shape")]
    for one in shapeless:
        one.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    finally:
        for one in shapeless:
            one.ClearField("shape")


def _check_dense_sizes(model: ModelProto, where: str) -> None:
    """Raise if sparse weights claim more room than a model may have: onnxruntime makes them dense."""
    for sparse in model.graph.sparse_initializer:
        count = 8  # bytes of the largest numbers
        for length in sparse.dims:
            count *= max(0, int(length))
        if count > LARGEST:
            shape = [int(length) for length in sparse.dims][:8]
            raise ValueError(f"{where}: the sparse weights {sparse.values.name} {shape} have over 2 GB when filled")


def _check_text(graph: GraphProto, where: str) -> None:
    """Raise if a name in a graph, or in its branches and loops, is no text: protobuf gives it as bytes."""
    for node in graph.node:
        names = [node.name, node.op_type, node.domain, *node.input, *node.output]
        odd = [name for name in names if isinstance(name, bytes)]
        if odd:
            raise ValueError(f"{where}: names in a model must be UTF-8, got {odd[0][:60]!r}")
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _check_text(inner, where)
    sparse = (one.values for one in graph.sparse_initializer)
    for entry in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *sparse):
        if isinstance(entry.name, bytes):
            raise ValueError(f"{where}: names in a model must be UTF-8, got {entry.name[:60]!r}")


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
        with open_regular(file) as held:
            held.seek(offset)
            tensor.raw_data = held.read(length)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _part(tensor: TensorProto, path: Path) -> tuple[Path, int, int]:
    """The file that holds a tensor's weights, and where in it they are: offset and length."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location, folder = entries.get("location", ""), path.resolve().parent
    try:
        file = (folder / location).resolve()
        there = file.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, links in a circle
        raise ValueError(f"{path}: weights must lie in a file beside it, got {location[:60]!r}") from None
    if not location or not file.is_relative_to(folder):
        raise ValueError(f"{path}: weights must lie in the model's folder, {tensor.name} is in {location!r}")
    if not there:
        raise ValueError(f"{path}: {location!r}, which holds its weights, is not beside it")
    held = os.stat(file).st_size
    numbers = [entries.get("offset", "0"), entries.get("length", "")]
    if not all(text.isascii() and text.isdecimal() and len(text) < 20 for text in numbers if text):
        raise ValueError(f"{path}: offset and length of {tensor.name} must be whole numbers, got {numbers}")
    offset = int(numbers[0] or 0)
    length = int(numbers[1]) if numbers[1] else max(0, held - offset)
    if offset + length > held:
        raise ValueError(f"{path}: {tensor.name} lies beyond the end of {location!r}, which has {held:,} bytes")
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
