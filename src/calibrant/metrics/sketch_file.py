"""Sketches on disk: ``.safetensors`` with a checksum of everything in it, checked from end to end when it is read.

Metadata: ``format``, ``version``, ``cells`` (how many there are), ``settings`` as JSON, and ``checksum``: SHA-256 over
these four and over name, type, shape and bytes of every array, in the order of their names. Files of earlier versions
have none.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from calibrant._files import parse_json, read_regular, written_aside
from calibrant.metrics.cells import BASE, CELLS, base_bins

FORMAT, VERSION = "calibrant.sketch", "1"
LARGEST = 2**26  # bytes of a file: every cell filled takes less than half
MOST = 2**53  # samples: beyond, float64 does not count
_SHAPES = {"base_counts": (2 * BASE,), "base_sums": (2 * BASE,), "moments": (5,)}
_TYPES = {"base_counts": torch.int64, "base_sums": torch.float64, "moments": torch.float64}
_FACTS = ("format", "version", "cells", "settings", "checksum")


def write(path: str | Path, states: dict[str, Tensor], settings: dict[str, Any]) -> None:
    """Write a sketch's states and settings, aside and then renamed; empty cells take no room."""
    filled = states["cells"].nonzero().squeeze(1)
    tensors = {name: states[name].contiguous() for name in _SHAPES}
    tensors |= {"filled": filled, "counts": states["cells"][filled]}
    facts = {"format": FORMAT, "version": VERSION, "cells": str(CELLS), "settings": json.dumps(settings)}
    facts["checksum"] = _checksum(tensors, facts)
    with written_aside(path) as aside:
        safetensors.torch.save_file(tensors, aside, metadata=facts)


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """States and settings of a sketch; whatever is wrong with the file is a ValueError that names it."""
    try:
        data = read_regular(path, LARGEST)
        facts = _facts(data)
        tensors = safetensors.torch.load(data)
        states, settings = _states(tensors), _settings(facts["settings"])
        if "checksum" in facts and facts["checksum"] != _checksum(tensors, facts):
            raise ValueError("it is damaged: its checksum is that of other contents")
        return states, settings
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (SafetensorError, ValueError, OSError) as error:
        text = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: cannot read a sketch: {text}") from None


def _checksum(tensors: dict[str, Tensor], facts: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps([facts[name] for name in _FACTS[:4]]).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.numpy().tobytes())
    return f"sha256:{digest.hexdigest()}"


def _facts(data: bytes) -> dict[str, str]:
    """The metadata, out of the header: eight bytes with its length, and then JSON."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("it is not a .safetensors file, or a part of one")
    header = parse_json(data[8 : 8 + length], "a header of .safetensors")
    facts = header.get("__metadata__") if isinstance(header, dict) else None
    facts = facts if isinstance(facts, dict) else {}
    if (facts.get("format"), facts.get("version"), facts.get("cells")) != (FORMAT, VERSION, str(CELLS)):
        raise ValueError("it is not a sketch of this version")
    if not set(_FACTS[:4]) <= set(facts) <= set(_FACTS) or not all(isinstance(one, str) for one in facts.values()):
        raise ValueError(f"its metadata must be {', '.join(_FACTS)}, got {', '.join(map(str, facts))[:200]}")
    return facts


def _settings(text: str) -> dict[str, Any]:
    settings = parse_json(text, "settings")
    if not isinstance(settings, dict) or set(settings) != {"kind", "ignore_index"}:
        raise ValueError("its settings must be kind and ignore_index")
    kind, ignored = settings["kind"], settings["ignore_index"]
    if kind not in ("logits", "probabilities"):
        raise ValueError(f"its kind must be 'logits' or 'probabilities', got {str(kind)[:40]!r}")
    if ignored is not None and (type(ignored) is not int or not -(2**63) <= ignored < 2**63):
        raise ValueError(f"its ignore_index must be a whole number or null, got {str(ignored)[:40]}")
    return settings


def _states(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    if set(tensors) != {*_SHAPES, "filled", "counts"}:
        raise ValueError(f"its arrays are damaged: got {', '.join(sorted(tensors))[:200]}")
    for name, shape in _SHAPES.items():
        if tensors[name].dtype != _TYPES[name] or tensors[name].shape != shape:
            raise ValueError(f"{name} is damaged")
    filled, counts = tensors["filled"], tensors["counts"]
    if filled.dtype != torch.int64 or counts.dtype != torch.int64 or filled.dim() != 1 or filled.shape != counts.shape:
        raise ValueError("its cells are damaged")
    inside = not len(filled) or (int(filled[0]) >= 0 and int(filled[-1]) < 2 * CELLS)
    if not inside or not bool((filled.diff() > 0).all()) or not bool(((counts > 0) & (counts <= MOST)).all()):
        raise ValueError("its cells are damaged")
    _check_sums(tensors, filled, counts)
    states = {name: tensors[name] for name in _SHAPES}
    return states | {"cells": torch.zeros(2 * CELLS, dtype=torch.int64).index_add_(0, filled, counts)}


def _check_sums(tensors: dict[str, Tensor], filled: Tensor, counts: Tensor) -> None:
    """Raise unless cells, bins and sums agree with each other as those of one set of samples do."""
    total = float(counts.double().sum())
    side = 2 * base_bins(filled % CELLS).long() + (filled >= CELLS)
    bins = torch.zeros(2 * BASE, dtype=torch.int64).index_add_(0, side, counts)
    if total > MOST or not torch.equal(bins, tensors["base_counts"]):
        raise ValueError("its counts do not add up")
    sums, moments = tensors["base_sums"], tensors["moments"]
    if not bool(((sums >= 0) & (sums <= bins * (1 + 1e-6))).all()):
        raise ValueError("its sums of confidences are damaged")
    # The NLL of a label with probability 0 is infinite; of the rest of these five nothing is.
    if not bool((moments >= 0).all()) or not bool(torch.isfinite(moments[2:]).all()) or float(moments[4]) > total:
        raise ValueError("its sums of NLL and Brier score are damaged")
