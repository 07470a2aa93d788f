"""The pickled batches of CIFAR, read without unpickling: a pickle is a program, and files are not trusted.

The opcodes are interpreted here: numbers, text, lists, dictionaries, and the calls by which NumPy pickles an array.
Any other name or opcode is an error, and nothing is imported or called on the file's behalf.
"""

from __future__ import annotations

import math
import pickletools
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.data.files import UnreadableError, read_bytes, short_repr

#: The largest official batch has 155 MB and half a million opcodes.
MAX_BYTES, MAX_OPCODES = 2**29, 1_000_000

_CORES = ("numpy.core", "numpy._core")  # NumPy 1 and 2
_RECONSTRUCT = frozenset(f"{core}.multiarray._reconstruct" for core in _CORES)
_FROM_BUFFER = frozenset(f"{core}.numeric._frombuffer" for core in _CORES)
_NAMES = _RECONSTRUCT | _FROM_BUFFER | {"numpy.ndarray", "numpy.dtype", "_codecs.encode"}
_TYPES = frozenset(f"{kind}{size}" for kind in "ui" for size in (1, 2, 4, 8))

_TEXT = frozenset({"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
_VALUES = _TEXT | {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_STRINGS = frozenset({"STRING", "BINSTRING", "SHORT_BINSTRING"})  # Python 2's str: bytes
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _RefusedError(ValueError):
    """The pickle holds what a batch of CIFAR does not."""


@dataclass(frozen=True)
class _Name:
    name: str


@dataclass
class _Type:
    code: str
    order: str = "="


@dataclass
class _Array:
    """An array under construction: NumPy makes an empty one first, and fills it by BUILD."""

    array: NDArray[Any] | None = None


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary that a pickle file holds, with str keys; Python 2's strings come as bytes.

    Raises:
        UnreadableError: It holds anything but data, or is broken; the message names the file and what is wrong.
    """
    data = read_bytes(path, MAX_BYTES)
    try:
        content = _Machine(len(data)).run(data)
    except _RefusedError as error:
        raise UnreadableError(f"{path}: {error}") from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, struct.error) as error:
        cause = "a number has too many digits" if "digits" in str(error) else " ".join(str(error).split())[:200]
        raise UnreadableError(f"{path}: the pickle is truncated or broken ({cause})") from error
    if not isinstance(content, dict):
        raise UnreadableError(f"{path}: the pickle should hold a dictionary, and holds {type(content).__name__}")
    return {key: value.array if isinstance(value, _Array) else value for key, value in content.items()}


class _Machine:
    """A pickle machine: a stack, the positions of its marks, and the memo."""

    def __init__(self, budget: int):
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.budget = budget  # bytes that may be made anew: a small file must not grow by repeating itself

    def run(self, data: bytes) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count == MAX_OPCODES:
                raise _RefusedError(f"the pickle has more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                break
            self.step(opcode.name, argument)
        if len(self.stack) != 1:
            raise _RefusedError(f"the pickle leaves {len(self.stack)} values instead of one")
        return self.stack.pop()

    def step(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        if opcode in _VALUES:
            stack.append(argument)
        elif opcode in _STRINGS:
            stack.append(argument.encode("latin-1"))
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode in ("PROTO", "FRAME"):
            pass
        elif opcode in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif opcode == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif opcode in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif opcode in ("GLOBAL", "STACK_GLOBAL"):
            name = argument.replace(" ", ".", 1) if opcode == "GLOBAL" else ".".join(self.pop(2))
            if name not in _NAMES:
                raise _RefusedError(f"the pickle names {name}, which no batch of CIFAR needs; it was not run")
            stack.append(_Name(name))
        elif opcode == "REDUCE":
            stack.append(self.call(*self.pop(2)))
        elif opcode == "BUILD":
            _build(*self.pop(2, keep=1))
        else:
            self.collect(opcode)

    def collect(self, opcode: str) -> None:
        """The opcodes that make and fill lists, tuples and dictionaries."""
        stack = self.stack
        if opcode == "MARK":
            self.marks.append(len(stack))
        elif opcode in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE"):
            stack.append([] if opcode == "EMPTY_LIST" else {} if opcode == "EMPTY_DICT" else ())
        elif opcode in _TUPLES:
            stack.append(tuple(self.pop(_TUPLES[opcode])))
        elif opcode in ("TUPLE", "LIST", "DICT"):
            values = self.pop_marked()
            stack.append(values if opcode == "LIST" else tuple(values) if opcode == "TUPLE" else _make_dict(values))
        elif opcode in ("APPEND", "APPENDS"):
            values = self.pop(1) if opcode == "APPEND" else self.pop_marked()
            self.top(list).extend(values)
        elif opcode in ("SETITEM", "SETITEMS"):
            values = self.pop(2) if opcode == "SETITEM" else self.pop_marked()
            self.top(dict).update(_make_dict(values))
        else:
            raise _RefusedError(f"the pickle uses the opcode {opcode}, which no batch of CIFAR needs; it was not run")

    def pop(self, count: int, keep: int = 0) -> list[Any]:
        """The last values; the first ``keep`` of them stay on the stack."""
        if len(self.stack) < count:
            raise _RefusedError("the pickle takes values from an empty stack")
        values = self.stack[-count:]
        del self.stack[len(self.stack) - count + keep :]
        return values

    def top(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise _RefusedError(f"the pickle fills a {type(self.stack[-1]).__name__} as if it were a {kind.__name__}")
        return self.stack[-1]

    def pop_marked(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def call(self, function: Any, arguments: Any) -> Any:
        """The calls that make bytes, a type and an array, done here; every other one is refused."""
        name = function.name if isinstance(function, _Name) else type(function).__name__
        match name, arguments:
            case "_codecs.encode", (str(text), "latin1" | "latin-1"):
                self.budget -= len(text)
                if self.budget < 0:
                    raise _RefusedError("the pickle repeats itself into more bytes than the file has")
                return text.encode("latin-1")
            case "numpy.dtype", (str() | bytes() as code, 0, 1):  # False and True are 0 and 1
                if _text(code) not in _TYPES:
                    raise _RefusedError(f"the pickle holds an array of type {_text(code)!r}, and integers are expected")
                return _Type(_text(code))
            case _, (_Name("numpy.ndarray"), (0,), b"b" | "b") if name in _RECONSTRUCT:
                return _Array()
            case _, (bytes() | bytearray() as data, _Type() as kind, tuple(shape), order) if name in _FROM_BUFFER:
                return _Array(_array(data, kind, shape, order == "F"))
        raise _RefusedError(f"the pickle calls {name} in a way that no batch of CIFAR does; it was not run")


def _make_dict(values: list[Any]) -> dict[str, Any]:
    keys = values[::2]
    if len(values) % 2 or not all(isinstance(key, (str, bytes)) for key in keys):
        raise _RefusedError("the pickle holds a dictionary whose keys are not text")
    return dict(zip(map(_text, keys), values[1::2], strict=True))


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _build(value: Any, state: Any) -> None:
    match value, state:
        case _Type(), (int(), "<" | ">" | "|" | "=" | b"<" | b">" | b"|" | b"=" as order, None, None, None, *_):
            value.order = _text(order)
        case _Array(), (int(), tuple(shape), _Type() as kind, bool() | int() as fortran, bytes() | bytearray() as data):
            value.array = _array(data, kind, shape, bool(fortran))
        case _:
            raise _RefusedError("the pickle fills a value in a way that no batch of CIFAR does")


def _array(data: bytes | bytearray, kind: _Type, shape: tuple[Any, ...], fortran: bool) -> NDArray[Any]:
    dtype = np.dtype(kind.order + kind.code)
    is_shape = len(shape) <= 4 and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or math.prod(shape) * dtype.itemsize != len(data):
        expected = f"an array of shape {short_repr(shape)} and type {kind.code}"
        raise _RefusedError(f"the pickle has {len(data)} bytes for {expected}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
