"""What holds for several formats: files of other programs have no checksums, and metadata is not believed."""

import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from calibrant import Predictions
from tests.helpers.predictions import SMALL, refusal


def test_files_of_other_programs_have_no_checksums_and_are_read(tmp_path):
    safetensors.numpy.save_file({"logits": SMALL.logits, "labels": SMALL.labels}, tmp_path / "a.safetensors")
    np.save(tmp_path / "a_logits.npy", SMALL.logits)
    np.save(tmp_path / "a_labels.npy", SMALL.labels)
    SMALL.save(tmp_path / "b.parquet")
    table = pq.read_table(tmp_path / "b.parquet")
    pq.write_table(table.drop(["ids"]), tmp_path / "a.parquet")  # keeps our metadata
    for name in ("a.safetensors", "a_logits.npy", "a.parquet"):
        assert np.array_equal(Predictions.open(tmp_path / name).logits, SMALL.logits)
    assert safetensors.numpy.load_file(tmp_path / "a.safetensors").keys() == {"logits", "labels"}
    SMALL.save(tmp_path / "c.safetensors")
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "c.safetensors")["logits"], SMALL.logits)


FIXED = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(6)), 6)
METADATA = {
    "deep": "[" * 100_000,
    "deep names": '{"a":' * 5000 + "1" + "}" * 5000,
    "twice": '{"kind": "classification", "kind": "segmentation"}',
    "not JSON": "{",
    "not UTF-8": b"\xff",
    "a list": "[]",
    "null": "null",
    "names 5": '{"class_names": 5}',
    "names by name": '{"class_names": {"a": 1}}',
    "a name null": '{"class_names": ["a", null, "b", "c", "d", "e"]}',
    "a surrogate": '{"class_names": ["\\ud800", "b", "c", "d", "e", "f"]}',
    "kind 5": '{"kind": 5}',
    "split": '{"split": {}}',
    "infinite": '{"ignore_index": 1e400}',
    "NaN": '{"ignore_index": NaN}',
    "digits": '{"ignore_index": ' + "9" * 5000 + "}",
    "wide": '{"ignore_index": 18446744073709551616}',
    "labels are": '{"labels_are": [1]}',
    "shape of text": '{"shape": ["3"]}',
    "shape true": '{"shape": [true]}',
    "shape 10^400": json.dumps({"shape": [10**400]}),
    "shape 10^12": json.dumps({"shape": [10**12]}),
    "shape 6 of 10^12": json.dumps({"kind": "segmentation", "shape": [10**12, 10**12, 10**12]}),
    "shape of none": json.dumps({"kind": "segmentation", "shape": [2, 3]}),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata_that_nobody_wrote(case, tmp_path):
    odd = METADATA[case]
    table = pa.table({"logits": FIXED, "labels": [0]}).replace_schema_metadata({"calibrant": odd})
    pq.write_table(table, tmp_path / "a.parquet")
    refusal(tmp_path / "a.parquet")
    if "shape" in case or isinstance(odd, bytes):
        return
    entries = {
        "__metadata__": {"calibrant": odd},
        "logits": {"dtype": "F32", "shape": [1, 6], "data_offsets": [0, 24]},
        "labels": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]},
    }
    header = json.dumps(entries).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(32))
    refusal(tmp_path / "a.safetensors")
