"""Files of sketches: what is written is read, and nothing else is believed."""

import contextlib
import hashlib
import json
import os

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from calibrant.metrics import ConfidenceSketch
from calibrant.metrics.sketch.grid import CELLS


@pytest.fixture
def path(tmp_path):
    generator = torch.Generator().manual_seed(0)
    sketch = ConfidenceSketch(ignore_index=9)
    sketch.update(torch.randn(70, 4, generator=generator), torch.randint(0, 4, (70,), generator=generator))
    sketch.save(tmp_path / "s.safetensors")
    return tmp_path / "s.safetensors"


def parts(path):
    """Arrays and metadata of a sketch's file."""
    with safe_open(path, framework="pt") as file:
        return load_file(path), file.metadata()


def rewritten(path, arrays=None, facts=None, *, checksum=False):
    """The file with some arrays and metadata changed; without its checksum, unless that is left to be stale."""
    tensors, metadata = parts(path)
    if not checksum:
        del metadata["checksum"]
    save_file(tensors | (arrays or {}), path, metadata=metadata | (facts or {}))


def values(sketch):
    return {name: getattr(sketch, name).tolist() for name in ("base_counts", "base_sums", "moments")}


def test_the_checksum_is_what_the_docs_say(path):
    tensors, facts = parts(path)
    digest = hashlib.sha256(json.dumps([facts[name] for name in ("format", "version", "cells", "settings")]).encode())
    for name in sorted(tensors):
        digest.update(json.dumps([name, str(tensors[name].dtype), list(tensors[name].shape)]).encode())
        digest.update(tensors[name].numpy().tobytes())
    assert facts["checksum"] == "sha256:" + digest.hexdigest()


def test_a_file_without_a_checksum_is_read(path):
    expected = ConfidenceSketch.load(path)
    rewritten(path)
    assert values(ConfidenceSketch.load(path)) == values(expected)
    assert ConfidenceSketch.load(path).ignore_index == 9


def test_other_contents_than_the_checksum_says_are_refused(path):
    tensors, _ = parts(path)
    moments = tensors["moments"].clone()
    moments[0] += 1e-9  # which nothing else could tell
    rewritten(path, {"moments": moments}, checksum=True)
    with pytest.raises(ValueError, match="damaged: its checksum is that of other contents"):
        ConfidenceSketch.load(path)
    rewritten(path, {"moments": moments})
    ConfidenceSketch.load(path)


def of_moments(tensors, at, value):
    changed = tensors["moments"].clone()
    changed[at] = value
    return {"moments": changed}


CHANGES = {
    "negative": (lambda t: of_moments(t, 0, -1.0), "NLL and Brier"),
    "nan": (lambda t: of_moments(t, 1, torch.nan), "NLL and Brier"),
    "infinite brier": (lambda t: of_moments(t, 2, torch.inf), "NLL and Brier"),
    "more than all": (lambda t: of_moments(t, 4, 71.0), "NLL and Brier"),
    "sums": (lambda t: {"base_sums": t["base_sums"] + 1e6}, "sums of confidences"),
    "negative sums": (lambda t: {"base_sums": -t["base_sums"]}, "sums of confidences"),
    "nan sums": (lambda t: {"base_sums": t["base_sums"] * torch.nan}, "sums of confidences"),
    "bins": (lambda t: {"base_counts": t["base_counts"].roll(2)}, "do not add up"),
    "cells": (lambda t: {"filled": t["filled"].flip(0)}, "cells are damaged"),
    "twice": (lambda t: {"filled": t["filled"].clamp(max=int(t["filled"][0]))}, "cells are damaged"),
    "counts of none": (lambda t: {"counts": t["counts"] * 0}, "cells are damaged"),
    "huge counts": (lambda t: {"counts": t["counts"] + 2**61}, "cells are damaged"),
    "outside": (lambda t: {"filled": t["filled"] + 2 * CELLS}, "cells are damaged"),
    "shape": (lambda t: {"filled": t["filled"][:, None]}, "cells are damaged"),
    "number": (lambda t: {"counts": torch.tensor(3)}, "cells are damaged"),
    "type": (lambda t: {"base_sums": t["base_sums"].float()}, "base_sums is damaged"),
    "half": (lambda t: {"moments": t["moments"].bfloat16()}, "its arrays are damaged: one is of type 'BF16'"),
    "length": (lambda t: {"base_counts": t["base_counts"][:-2].clone()}, "base_counts is damaged"),
    "more": (lambda t: {"extra": torch.zeros(1)}, "arrays are damaged"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_arrays_must_agree(path, change):
    make, words = CHANGES[change]
    rewritten(path, make(parts(path)[0]))
    with pytest.raises(ValueError, match=f"cannot read a sketch: .*{words}"):
        ConfidenceSketch.load(path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("{", "not settings"),
        ("[" * 5000, "not settings: nested deeper"),
        ("[]", "settings must be kind and ignore_index"),
        ('{"kind": "logits"}', "settings must be kind and ignore_index"),
        ('{"kind": "logits", "ignore_index": null, "score": "os.system"}', "settings must be"),
        ('{"kind": "vibes", "ignore_index": null}', "kind must be"),
        ('{"kind": ["logits"], "ignore_index": null}', "kind must be"),
        ('{"kind": "logits", "ignore_index": 1.5}', "ignore_index must be"),
        ('{"kind": "logits", "ignore_index": true}', "ignore_index must be"),
        ('{"kind": "logits", "ignore_index": 99999999999999999999}', "ignore_index must be"),
        ('{"kind": "logits", "ignore_index": NaN}', "not settings"),
    ],
)
def test_settings_are_checked(path, settings, words):
    rewritten(path, facts={"settings": settings})
    with pytest.raises(ValueError, match=words) as error:
        ConfidenceSketch.load(path)
    assert str(error.value).startswith(f"{path}: cannot read a sketch: ")


def test_metadata_of_others_is_refused(path):
    rewritten(path, facts={"hook": "x"})
    with pytest.raises(ValueError, match="its metadata must be format, version, cells, settings, checksum"):
        ConfidenceSketch.load(path)


def test_no_flipped_bit_is_read_as_another_sketch(path):
    data, expected = path.read_bytes(), values(ConfidenceSketch.load(path))
    for bit in np.random.default_rng(0).choice(8 * len(data), 300, replace=False):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            assert values(ConfidenceSketch.load(path)) == expected, bit


def test_what_is_no_file_of_that_size_is_not_read(tmp_path):
    large, pipe = tmp_path / "large", tmp_path / "pipe"
    with open(large, "wb") as file:
        file.truncate(10**9)
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="large: cannot read a sketch: expected at most 67,108,864 bytes"):
        ConfidenceSketch.load(large)
    with pytest.raises(ValueError, match="pipe: cannot read a sketch: expected a file, got a named pipe"):
        ConfidenceSketch.load(pipe)
    (tmp_path / "claim").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match=r"claim: cannot read a sketch: it is not a complete \.safetensors file"):
        ConfidenceSketch.load(tmp_path / "claim")


def of(confidence, correct):
    sketch = ConfidenceSketch()
    sketch.update_confidence(torch.as_tensor(confidence), torch.as_tensor(correct))
    return sketch


def test_save_and_load(tmp_path):
    sketch = of(torch.rand(500), torch.rand(500) < 0.7)
    sketch.save(tmp_path / "s.safetensors")
    again = ConfidenceSketch.load(tmp_path / "s.safetensors")
    assert again.compute() == sketch.compute()
    assert (again + sketch).summary().samples == 1000
    assert (tmp_path / "s.safetensors").stat().st_size < 50_000


def test_damaged_files_are_refused(tmp_path):
    sketch = of(torch.rand(50), torch.rand(50) < 0.7)
    sketch.save(tmp_path / "s.safetensors")
    whole = (tmp_path / "s.safetensors").read_bytes()
    for name, content in {"cut": whole[:-40], "empty": b"", "text": b"not a sketch", "short": whole[:9]}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}: cannot read a sketch"):
            ConfidenceSketch.load(tmp_path / name)
    with pytest.raises(ValueError, match="no such file"):
        ConfidenceSketch.load(tmp_path / "missing")
