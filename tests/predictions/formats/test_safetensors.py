"""Safetensors: of torch, and hostile headers."""

import struct

import numpy as np
import pytest
import safetensors.torch
import torch

from calibrant import Predictions
from tests.helpers.predictions import C, N, refusal


def test_safetensors_of_torch_in_bfloat16(tmp_path):
    z = torch.randn(N, C, generator=torch.Generator().manual_seed(0)).bfloat16()
    tensors = {"logits": z, "labels": torch.arange(N, dtype=torch.int32) % C, "float8": z.to(torch.float8_e4m3fn)}
    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    opened = Predictions.open(tmp_path / "a.safetensors")
    assert opened.logits.dtype == np.float32
    assert np.array_equal(opened.logits, z.float().numpy())
    with pytest.raises(ValueError, match=r"float8 must be numbers that NumPy has, or bfloat16, got F8_E4M3"):
        Predictions.open(tmp_path / "a.safetensors", columns={"logits": "float8"})


def entries(count):
    return b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(count))


LARGE = {
    "numbers": lambda: b'{"a": [' + b"1.5," * 3_500_000 + b"1]}",
    "arrays": lambda: b"{" + entries(20_000) + b"}",
    "names": lambda: b"{" + b",".join(b'"%d":1' % i for i in range(1_200_000)) + b"}",
    "lists": lambda: b'{"a": ["x"' + b",[]" * 4_000_000 + b"]}",
    "deep": lambda: b'{"a":' * 100_000,
    "too long": lambda: b"{}" + b" " * (1 << 24),
}


HEADERS = {
    "list": b"[]",
    "no entry": b'{"logits": 5}',
    "no shape": b'{"logits": {"dtype": "F32", "data_offsets": [0, 0]}}',
    "negative": b'{"logits": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}}',
    "wide": b'{"logits": {"dtype": "F32", "shape": [1180591620717411303424], "data_offsets": [0, 0]}}',
    "dtype 5": b'{"logits": {"dtype": 5, "shape": [0], "data_offsets": [0, 0]}}',
    "true": b'{"logits": {"dtype": "F32", "shape": [0], "data_offsets": [false, false]}}',
    "gap": b'{"logits": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
    "short": b'{"logits": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}',
    "metadata 5": b'{"__metadata__": 5}',
    "metadata of 5": b'{"__metadata__": {"calibrant": 5}}',
    "levels": b'{"__metadata__": {"calibrant": "{\\"levels\\": {\\"ids\\": [1]}}"}}',
    "twice": b'{"a": 1, "a": 2}',
}


@pytest.mark.parametrize("case", [*LARGE, *HEADERS])
def test_headers_of_safetensors(case, tmp_path):
    header = LARGE[case]() if case in LARGE else HEADERS[case]
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    refusal(tmp_path / "a.safetensors")
