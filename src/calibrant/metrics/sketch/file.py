"""Sketches on disk: ``.safetensors`` with a checksum of everything in it, checked from end to end when it is read.

Metadata: ``format``, ``version``, ``cells`` (how many there are), ``settings`` as JSON, and ``checksum``: SHA-256 over
these four and over name, type (``torch.int64``, as PyTorch calls it), shape and bytes of every array, in the order of
their names. Files of earlier versions have none.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from calibrant._arrays import Array
from calibrant._files import parse_json, read_regular, written_aside
from calibrant.metrics.sketch.grid import BASE, CELLS, base_bins

FORMAT, VERSION = "calibrant.sketch", "1"

LARGEST = 2**26  # bytes of a file: every cell filled takes less than half
MOST = 2**53  # samples: beyond, float64 does not count
_SHAPES = {"base_counts": (2 * BASE,), "base_sums": (2 * BASE,), "moments": (5,)}
_TYPES = {"base_counts": np.int64, "base_sums": np.float64, "moments": np.float64}
_FACTS = ("format", "version", "cells", "settings", "checksum")


def write(path: str | Path, states: dict[str, Array], settings: dict[str, Any]) -> None:
    """Write a sketch's states and settings, aside and then renamed; empty cells take no room."""
    filled = np.flatnonzero(states["cells"])
    arrays = {name: np.ascontiguousarray(states[name]) for name in _SHAPES}
    arrays |= {"filled": filled, "counts": states["cells"][filled]}
    facts = {"format": FORMAT, "version": VERSION, "cells": str(CELLS), "settings": json.dumps(settings)}
    facts["checksum"] = _checksum(arrays, facts)
    with written_aside(path) as aside:
        safetensors.numpy.save_file(arrays, aside, metadata=facts)


def read(path: str | Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """States and settings of a sketch; whatever is wrong with the file is a ValueError that names it."""
    try:
        data = read_regular(path, LARGEST)
        facts = _read_facts(data)
        arrays = _read_arrays(data)
        states, settings = _read_states(arrays), _read_settings(facts["settings"])
        if "checksum" in facts and facts["checksum"] != _checksum(arrays, facts):
            raise ValueError("it is damaged: its checksum is that of other contents")
        return states, settings
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (SafetensorError, ValueError, OSError) as error:
        text = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: cannot read a sketch: {text}") from None


def _read_arrays(data: bytes) -> dict[str, Array]:
    try:
        return safetensors.numpy.load(data)
    except KeyError as error:  # a type that NumPy does not have
        raise ValueError(f"its arrays are damaged: one is of type {error}") from None


def _checksum(arrays: dict[str, Array], facts: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps([facts[name] for name in _FACTS[:4]]).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, f"torch.{array.dtype}", list(array.shape)]).encode())
        digest.update(array.tobytes())
    return f"sha256:{digest.hexdigest()}"


def _read_facts(data: bytes) -> dict[str, str]:
    """The metadata, out of the header: eight bytes with its length, and then JSON."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("it is not a complete .safetensors file")
    header = parse_json(data[8 : 8 + length], "a header of .safetensors")
    facts = header.get("__metadata__") if isinstance(header, dict) else None
    facts = facts if isinstance(facts, dict) else {}
    if (facts.get("format"), facts.get("version"), facts.get("cells")) != (FORMAT, VERSION, str(CELLS)):
        raise ValueError("it is not a sketch of this version")
    if not set(_FACTS[:4]) <= set(facts) <= set(_FACTS) or not all(isinstance(fact, str) for fact in facts.values()):
        raise ValueError(f"its metadata must be {', '.join(_FACTS)}, got {', '.join(map(str, facts))[:200]}")
    return facts


def _read_settings(text: str) -> dict[str, Any]:
    settings = parse_json(text, "settings")
    if not isinstance(settings, dict) or set(settings) != {"kind", "ignore_index"}:
        raise ValueError("its settings must be kind and ignore_index")
    kind, ignored = settings["kind"], settings["ignore_index"]
    if kind not in ("logits", "probabilities"):
        raise ValueError(f"its kind must be 'logits' or 'probabilities', got {str(kind)[:40]!r}")
    if ignored is not None and (type(ignored) is not int or not -(2**63) <= ignored < 2**63):
        raise ValueError(f"its ignore_index must be a whole number or null, got {str(ignored)[:40]}")
    return settings


def _read_states(arrays: dict[str, Array]) -> dict[str, Array]:
    if set(arrays) != {*_SHAPES, "filled", "counts"}:
        raise ValueError(f"its arrays are damaged: got {', '.join(sorted(arrays))[:200]}")
    for name, shape in _SHAPES.items():
        if arrays[name].dtype != _TYPES[name] or arrays[name].shape != shape:
            raise ValueError(f"{name} is damaged")
    filled, counts = arrays["filled"], arrays["counts"]
    if filled.dtype != np.int64 or counts.dtype != np.int64 or filled.ndim != 1 or filled.shape != counts.shape:
        raise ValueError("its cells are damaged")
    inside = not len(filled) or (int(filled[0]) >= 0 and int(filled[-1]) < 2 * CELLS)
    if not inside or not (np.diff(filled) > 0).all() or not ((counts > 0) & (counts <= MOST)).all():
        raise ValueError("its cells are damaged")
    _check_sums(arrays, filled, counts)
    states = {name: arrays[name] for name in _SHAPES}
    cells = np.zeros(2 * CELLS, np.int64)
    cells[filled] = counts
    return states | {"cells": cells}


def _check_sums(arrays: dict[str, Array], filled: Array, counts: Array) -> None:
    """Raise unless cells, bins and sums agree with each other as those of one set of samples do."""
    total = float(counts.astype(np.float64).sum())
    side = 2 * base_bins(filled % CELLS) + (filled >= CELLS)
    bins = np.zeros(2 * BASE, np.int64)
    np.add.at(bins, side, counts)
    if total > MOST or not np.array_equal(bins, arrays["base_counts"]):
        raise ValueError("its counts do not add up")
    sums, moments = arrays["base_sums"], arrays["moments"]
    if not ((sums >= 0) & (sums <= bins * (1 + 1e-6))).all():
        raise ValueError("its sums of confidences are damaged")
    # The NLL of a label with probability 0 is infinite; of the rest of these five nothing is.
    if not (moments >= 0).all() or not np.isfinite(moments[2:]).all() or float(moments[4]) > total:
        raise ValueError("its sums of NLL and Brier score are damaged")
