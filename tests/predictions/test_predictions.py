"""The type: what it holds, samples, batches, copies."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from calibrant import Predictions
from tests.helpers.errors import facts
from tests.helpers.predictions import IMAGES, PIXELS, P, Y, Z


def test_load_is_told_apart_from_open():
    with pytest.raises(TypeError, match=r"read a file with Predictions\.open\(path\)"):
        Predictions.load("x.npz")


def test_what_is_held_is_what_was_given_and_the_rest_is_none():
    p = Predictions.from_logits(Z, Y, ids=np.arange(5), groups={"site": ["a", "b", "a", "b", "b"]}, split="val")
    assert (p.holds, p.kind, p.num_classes, len(p), p.split) == ("logits", "classification", 3, 5, "val")
    assert p.logits is not None
    assert np.shares_memory(p.logits, Z)
    assert np.shares_memory(p.labels, Y)
    assert p.logits.flags.writeable
    assert p.groups["site"].tolist() == ["a", "b", "a", "b", "b"]
    assert (p.probabilities, p.confidence, p.correct, p.objectness, p.class_names) == (None,) * 5
    assert p.ignore_index == -100  # as in the losses
    q = Predictions.from_probabilities(P, Y, objectness=np.linspace(0, 1, 5), class_names=("cat", "dog", "cow"))
    assert q.holds == "probabilities"
    assert q.class_names == ("cat", "dog", "cow")
    assert q.groups == {}
    assert q.logits is None
    c = Predictions.from_confidence([0.5, 1.0, 0.0], [1, 0, 1])
    assert (c.holds, c.num_classes, c.labels) == ("confidence", None, None)
    assert c.correct.tolist() == [True, False, True]
    s = Predictions.from_logits(IMAGES, PIXELS, kind="segmentation", ids=["x", "y"])
    assert (s.kind, s.num_classes, len(s), s.labels.shape) == ("segmentation", 3, 2, (2, 4, 5))


def test_nothing_can_be_set_or_written():
    p = Predictions.from_logits(Z.tolist(), Y.astype(np.int32), ids=["a", "b", "c", "d", "e"])
    for change in (lambda: setattr(p, "logits", Z), lambda: setattr(p, "other", 1), lambda: delattr(p, "_store")):
        with pytest.raises(AttributeError, match="cannot be changed"):
            change()
    for array in (p.logits, p.labels, p.ids):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    with pytest.raises(TypeError, match="from_logits"):
        Predictions()


def test_samples_are_those_of_numpy():
    groups = {"g": list("abcde")}
    p = Predictions.from_logits(Z, Y, ids=np.arange(5), groups=groups, class_names=["x", "y", "z"], split="test")
    tensor = torch.tensor([2, 1])
    for index in (slice(1, 4), slice(None, None, -2), [3, 0, 3], np.array([-1, 2]), tensor, Y == 1, list(Y == 0)):
        taken = p.samples(index)
        rows = np.asarray(index) if not isinstance(index, slice) else index
        assert np.array_equal(taken.logits, Z[rows])
        assert np.array_equal(taken.ids, np.arange(5)[rows])
        assert np.array_equal(taken.groups["g"], np.array(list("abcde"))[rows])
        assert (taken.class_names, taken.split) == (("x", "y", "z"), "test")
    assert np.shares_memory(p.samples(slice(2)).logits, Z)
    for index, told in (
        (slice(3, 3), "none 5"), (Y == 7, "none 5"), ([0, 5], "0..4 5"), ([-6], "0..4 -6"), (2, "int64"),
        ([True, False], "[5] [2]"), ([0.0], "float64"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=facts(*told.split())):
            p.samples(index)


def test_batches_cover_everything_once_and_are_of_bounded_size():
    p = Predictions.from_logits(IMAGES, PIXELS, kind="segmentation", ids=["x", "y"])
    assert [b.ids.tolist() for b in p.batches(1)] == [["x"], ["y"]]
    wide = np.zeros((9, 1 << 19), np.float16)
    assert [len(b) for b in Predictions.from_logits(wide, np.zeros(9, int)).batches()] == [8, 1]
    assert [len(b) for b in Predictions.from_confidence(np.zeros(5), np.zeros(5)).batches()] == [5]
    with pytest.raises(ValueError, match="batch size must be at least 1, got 0"):
        p.batches(0)


def test_copies_and_pickles_are_equal_and_leave_the_given_arrays_alone():
    z = Z.copy()
    p = Predictions.from_logits(z, Y, groups={"g": list("abcde")}, split="val")
    for again in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert np.array_equal(again.logits, Z)
        assert repr(again) == repr(p) == "Predictions(5 samples, logits of 3 classes, labels, group.g, split='val')"
    assert z.flags.writeable
    assert not pickle.loads(pickle.dumps(p)).logits.flags.writeable


def test_the_type_alone_loads_no_file_format_and_no_torch():
    """Oracle: Python's own list of loaded modules; the package's other parts are kept out by loading this one alone."""
    code = (
        "import sys, types, pathlib, calibrant_path;"
        "from calibrant.predictions import Predictions;"
        "Predictions.from_confidence([0.5], [1]);"
        "print(sorted({'torch', 'pyarrow', 'safetensors'} & set(sys.modules)))"
    )
    setup = (
        "import sys, types; m = types.ModuleType('calibrant'); "
        f"m.__path__ = [{str(sys.modules['calibrant'].__path__[0])!r}]; sys.modules['calibrant'] = m;"
        "sys.modules['calibrant_path'] = m;"
    )
    out = subprocess.run([sys.executable, "-c", setup + code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
