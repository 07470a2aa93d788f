"""Arrays in files: headers and shapes."""

import json
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant import Predictions
from tests.helpers.predictions import Q, archive, npy, refusal_of, refused


def test_one_hot_labels_in_files(tmp_path):
    np.savez(tmp_path / "a.npz", logits=Q, labels=np.eye(3, dtype=int)[[0, 1, 2, 0]])
    assert refusal_of(Predictions.open, tmp_path / "a.npz").endswith("got [4, 3] (use .argmax(1))")


def test_headers_that_promise_what_is_not_there(tmp_path):
    huge = 10**12
    for number, (descr, shape) in enumerate(
        [("<f8", (huge, 3)), ("<f4", (3, huge)), ("<f8", (2**62, 4)), ("<f8", (3, 4))]
    ):
        claim = npy(descr, shape, bytes(72))
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            archive(tmp_path / "a.npz", claim, method)
            refused(tmp_path / "a.npz", "header claims .* bytes, but the file holds 72$")
        (tmp_path / f"{number}_logits.npy").write_bytes(claim)
        np.save(tmp_path / f"{number}_labels.npy", np.zeros(3, int))
        refused(tmp_path / f"{number}_logits.npy", "header claims .* bytes, but the file holds 72$")
    for descr, shape, message in (
        ("|O", (3, 3), r"nothing is unpickled, got '\|O'"),
        ([("a", "<f8")], (3, 3), "nothing is unpickled"),
        ("<U0", (huge,), "nothing is unpickled"),
        ("<f8", (-3, -3), "has no shape"),
        ("<f8", "3", "has no shape"),
    ):
        archive(tmp_path / "a.npz", npy(descr, shape, bytes(72)))
        refused(tmp_path / "a.npz", message)
    archive(tmp_path / "a.npz", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535)
    refused(tmp_path / "a.npz", "at most 10000 bytes")
    np.savez(tmp_path / "a.npz", logits=np.array([{"a": 1}], dtype=object), labels=np.zeros(1, dtype=int))
    refused(tmp_path / "a.npz", "nothing is unpickled")
    header = json.dumps({"logits": {"dtype": "F32", "shape": [huge, 3], "data_offsets": [0, 12 * huge]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(36))
    refused(tmp_path / "a.safetensors", "not a whole safetensors file")
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refused(tmp_path / "a.safetensors", "not a whole safetensors file")
    table = pa.table({"logits": [[1.0] * 6], "labels": [[0] * 2]})
    pq.write_table(
        table.replace_schema_metadata({"calibrant": json.dumps({"kind": "segmentation", "shape": [huge, huge, 2]})}),
        tmp_path / "a.parquet",
    )
    refused(
        tmp_path / "a.parquet",
        "column 'logits' must be lists of 2000000000000000000000000 numbers, got 6 in row 0 .counted from 0.$",
    )
