"""Readers on damaged files: whatever bytes come in, a data set comes out or an error in a sentence, and soon."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrant.data import UnreadableError, Vocabulary, layouts, read, read_glove
from tests.helpers.damage import changes
from tests.helpers.data_trees import TREES, files_of, hostile_json

#: Bytes that mean something to one parser or another.
TOKENS = [
    b"\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"-1", b"1e999", b"9" * 5000, b"nan", b"\xed\xa0\x80", b"\n",
    b"\t", b'"', b",", b"{", b"[" * 2000, b"<a>", b"</annotation>", b"../", b"\x1b[2J", b"A" * 70_000, b"(", b"t",
    b"\x85" * 2000, b"I" + b"1" * 5000 + b"\n", b"\x8b\xff\xff\xff\x7f", b"null", b"PK\x05\x06", b"PAR1",
]  # fmt: skip
CHANGES = changes(TOKENS)
#: Seconds of CPU time that reading a tiny data set may take; a busy machine takes one.
PATIENCE = 5.0


def damaged(data, changes):
    for share, token, replaced in changes:
        at = int(share * len(data))
        data = data[:at] + token + data[at + replaced :]
    return data


def sentence(error):
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) < 2000


def read_all(root, case):
    """Read and decode everything, both ways."""
    _, layout, split, options = TREES[case]
    for on_error in ("skip", "raise"):
        try:
            data = read(root, split, layout=layout, on_error=on_error, **options)
        except (ValueError, OSError) as error:
            sentence(error)
            continue
        for i in range(len(data)):
            try:
                sample = data[i]
            except (UnreadableError, OSError) as error:
                sentence(error)
            else:
                assert -1 <= sample.label < len(data.classes)


@pytest.fixture(scope="module", params=TREES)
def tree(request, tmp_path_factory):
    root = TREES[request.param][0](tmp_path_factory.mktemp("tree") / "set")
    return request.param, root, [(path, path.read_bytes()) for path in files_of(root)]


def test_every_layout_has_a_tree():
    read_from_files = set(layouts()) - {"digits", "scenes", "scene-masks"}
    assert {layout for _, layout, _, _ in TREES.values()} == read_from_files, "add it to TREES of data_trees.py"


def test_the_trees_are_sound(tree):
    case, root, _ = tree
    _, layout, split, options = TREES[case]
    data = read(root, split, layout=layout, **options)
    assert len([sample.input for sample in data]) == len(data) > 0


@given(place=st.floats(0, 1, exclude_max=True), changes=CHANGES)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_damaged_files_are_read_or_refused(tree, place, changes):
    case, root, files = tree
    path, original = files[int(place * len(files))]
    path.write_bytes(damaged(original, changes))
    start = time.process_time()
    try:
        read_all(root, case)
    finally:
        path.write_bytes(original)
    assert time.process_time() - start < PATIENCE


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("coco", "annotations/instances_val2017.json"),
        ("calibrant", "dataset.json"),
        ("open-images", "bbox_labels_600_hierarchy.json"),
    ],
)
def test_json_of_other_kinds_is_read_or_refused(tmp_path, case, name):
    root = TREES[case][0](tmp_path / "set")
    for document in hostile_json(root / name)[::3]:
        (root / name).write_bytes(document)
        read_all(root, case)


@given(changes=CHANGES)
@settings(max_examples=40)
def test_word_vectors_are_read_or_refused(tmp_path_factory, changes):
    path = tmp_path_factory.getbasetemp() / "vectors.txt"
    path.write_bytes(damaged(b"the 1 2.5\na -3 4e-2\n. . 5 6\n", changes))
    try:
        vectors = read_glove(path, Vocabulary.build(["the a"]), 2)
    except ValueError as error:
        sentence(error)
    else:
        assert np.isfinite(vectors.values).all()


@given(changes=CHANGES)
@settings(max_examples=40)
def test_vocabularies_are_read_or_refused(changes):
    text = damaged(b'{"words": ["<pad>", "<unk>", "the", "a"]}', changes).decode("utf-8", "surrogateescape")
    try:
        assert Vocabulary.from_json(text).words[:2] == ("<pad>", "<unk>")
    except ValueError as error:
        sentence(error)
