"""The boundary type: what it takes from whom, what it refuses in which words, and that it cannot be changed."""

import copy
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch

from calibrant import Predictions
from tests.catalogue import batch

Z = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, -1.0], [3.0, 1.0, 0.5], [0.0, 0.25, 5.0], [1.0, 2.0, 3.0]])
Y = np.array([0, 1, 1, 2, 0])
P = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.125, 0.375, 0.5], [0.0, 0.0, 1.0], [0.25, 0.25, 0.5]])
IMAGES = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
PIXELS = np.arange(2 * 4 * 5).reshape(2, 4, 5) % 3


def test_what_is_held_is_what_was_given_and_the_rest_is_none():
    p = Predictions.from_logits(Z, Y, ids=np.arange(5), groups={"site": ["a", "b", "a", "b", "b"]}, split="val")
    assert (p.holds, p.kind, p.num_classes, len(p), p.split) == ("logits", "classification", 3, 5, "val")
    assert p.logits is not None
    assert np.shares_memory(p.logits, Z)
    assert np.shares_memory(p.labels, Y)
    assert p.logits.flags.writeable
    assert p.groups["site"].tolist() == ["a", "b", "a", "b", "b"]
    assert (p.probabilities, p.confidence, p.correct, p.objectness, p.class_names, p.ignore_index) == (None,) * 6
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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floating_types_are_kept_and_byte_order_is_ours(dtype):
    assert Predictions.from_logits(Z.astype(dtype), Y).logits.dtype == dtype
    swapped = Predictions.from_logits(Z.astype(np.dtype(dtype).newbyteorder(">")), Y.astype(">i2"))
    assert swapped.logits.dtype == np.dtype(dtype)
    assert swapped.logits.dtype.isnative
    assert swapped.labels.dtype == np.int64
    assert np.array_equal(swapped.logits, Z.astype(dtype))
    assert Predictions.from_probabilities(P.astype(dtype), Y).probabilities.dtype == dtype


logits, probabilities, confidence = (
    Predictions.from_logits,
    Predictions.from_probabilities,
    Predictions.from_confidence,
)
REFUSED = {
    "flat": (lambda: logits(Z[0], Y), r"^logits must be floating point \[N, C\]"),
    "whole": (lambda: logits(Z.astype(int), Y), r"logits must be floating point .* got int64 \[5, 3\]"),
    "empty": (lambda: logits(Z[:0], Y[:0]), r"N >= 1 and C >= 2.* got float64 \[0, 3\]"),
    "one class": (lambda: logits(Z[:, :1], Y), r"C >= 2.* got float64 \[5, 1\]"),
    "images": (lambda: logits(IMAGES, PIXELS), r'kind="segmentation"'),
    "no labels": (lambda: logits(Z, None), "^labels must be an array, got None$"),
    "ragged": (lambda: logits([[1.0, 2.0], [1.0]], [0, 1]), "^logits must be an array, got list"),
    "nan": (lambda: logits(np.where(Z == 5, np.nan, Z), Y), "finite, got nan in row 3 .counted from 0., class 2$"),
    "inf": (
        lambda: logits(np.where(Z == 5, -np.inf, Z).astype("f2"), Y),
        "got -inf in row 3 .counted from 0., class 2$",
    ),
    "pixel": (
        lambda: logits(np.where(IMAGES == 87, np.inf, IMAGES), PIXELS, kind="segmentation"),
        r"got inf in row 1 .counted from 0., class 1, pixel \[1, 2\]$",
    ),
    "few labels": (lambda: logits(Z, Y[:3]), r"^labels must be whole numbers \[5\], got int64 \[3\]$"),
    "float labels": (lambda: logits(Z, Y * 1.0), r"labels must be whole numbers \[5\], got float64"),
    "bool labels": (lambda: logits(Z, Y > 0), r"labels must be whole numbers \[5\], got bool"),
    "label 3": (lambda: logits(Z, [0, 1, 3, 2, 0]), r"^labels must lie in 0..2, got 3 in row 2 .counted from 0.$"),
    "label -1": (lambda: logits(Z, Y - 1), r"labels must lie in 0..2, got -1 in row 0 .counted from 0.$"),
    "huge label": (
        lambda: logits(Z, Y.astype(np.uint64) + np.uint64(2**63)),
        "got 9223372036854775808 in row 0 .counted from 0.$",
    ),
    "not the ignored": (
        lambda: logits(Z, [0, 255, 254, 2, 0], ignore_index=255),
        "or be the ignored 255, got 254 in row 2 .counted from 0.$",
    ),
    "names without classes": (
        lambda: logits(Z, list("abcab")),
        "class names given, got 'a' in row 0 .counted from 0. .* class_names=.*--class-names.$",
    ),
    "unknown name": (
        lambda: logits(Z, list("abcxa"), class_names=list("abc")),
        "labels must be among the class names a, b, c, got 'x' in row 3 .* class_names=.*--class-names.$",
    ),
    "few names": (lambda: logits(Z, Y, class_names=["a", "b"]), "class_names must be 3, .* got 2$"),
    "name twice": (lambda: logits(Z, Y, class_names=["a", "b", "a"]), "must differ, got 'a' twice$"),
    "name 1": (lambda: logits(Z, Y, class_names=["a", "b", 1]), "must be a list of text, got 1$"),
    "kind": (lambda: logits(Z, Y, kind="images"), "kind must be one of .*, got 'images'$"),
    "split": (lambda: logits(Z, Y, split="dev"), "split must be one of None, .*, got 'dev'$"),
    "ignore": (lambda: logits(Z, Y, ignore_index=True), "ignore_index must be .* got True$"),
    "ids": (lambda: logits(Z, Y, ids=Y * 0.5), r"ids must be whole numbers or text \[5\], got float64"),
    "odd ids": (lambda: logits(Z, Y, ids=np.array([1, "a", 2, 3, 4], object)), "object array with int"),
    "group": (lambda: logits(Z, Y, groups={"g": [1, 2]}), r"^group.g must be .* \[5\], got int64 \[2\]"),
    "groups": (lambda: logits(Z, Y, groups=[1, 2]), "groups must be a dict .* got list$"),
    "objectness": (lambda: logits(Z, Y, objectness=Z[:, 0]), r"in 0..1, got 2.0 in row 0 "),
    "above 1": (lambda: probabilities(P + 1e-5, Y), r"probabilities must lie in 0..1, got 1.00001 in row 1"),
    "below 0": (lambda: probabilities(P - 1e-9, Y), r"in 0..1, got -1e-09 in row 1 .counted from 0., class 1$"),
    "sum": (
        lambda: probabilities(np.where(P == 0.375, 0.377, P), Y),
        r"probabilities must sum to 1 within 0.001, got 1.002 in row 2 .*digits.*p / p.sum\(1, keepdims=True\)\)$",
    ),
    "half sum": (
        lambda: probabilities(np.where(P == 0.375, 0.5, P).astype("f2"), Y),
        r"within 0.01, got 1.125 in row 2 .counted from 0.$",
    ),
    "sure": (
        lambda: confidence([0.5, 1.0 + 1e-9], [1, 1]),
        r"confidence must lie in 0..1, got 1.0.* row 1 .counted from 0.$",
    ),
    "nan confidence": (lambda: confidence([0.5, np.nan], [1, 1]), "got nan in row 1 .counted from 0.$"),
    "correct 2": (lambda: confidence([0.5, 0.5], [1, 2]), "true or false, or 0 or 1, got 2 in row 1 .counted from 0.$"),
    "correct text": (lambda: confidence([0.5, 0.5], ["1", "0"]), "correct must be true or false"),
    "confidence shape": (lambda: confidence(P, Y > 0), r"confidence must be floating point \[N\]"),
    "masked": (lambda: logits(np.ma.masked_greater(Z, 4), Y), "masked array with masked values$"),
}
if np.dtype(np.longdouble).itemsize > 8:
    REFUSED["long"] = (lambda: logits(Z.astype(np.longdouble), Y), "float16, float32 or float64.* got float128")


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_sentence(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_tolerances_are_as_stated():
    Predictions.from_probabilities(np.where(P == 1, 1 + 1e-6, P), Y)
    Predictions.from_probabilities(np.where(P == 0.375, 0.3759, P), Y)
    Predictions.from_probabilities(np.where(P == 0.375, 0.38, P).astype(np.float16), Y)
    Predictions.from_probabilities(-0.0 * P + P, Y)
    Predictions.from_probabilities(np.where(P == 0, -0.0, P), Y)
    Predictions.from_confidence(np.array([0.0, -0.0, 1.0], np.float16), np.array([0.0, 1.0, 1.0]))


def test_names_of_classes_become_numbers_and_ignored_labels_stay():
    p = Predictions.from_logits(Z, ["dog", "cat", "cow", "cow", "dog"], class_names=["dog", "cow", "cat"])
    assert p.labels.tolist() == [0, 2, 1, 1, 0]
    assert Predictions.from_logits(Z, np.array(["b", "a"] * 2 + ["b"], object), class_names=list("abc")).labels[0] == 1
    marked = Predictions.from_logits(
        IMAGES, np.where(PIXELS == 2, 255, PIXELS).astype(np.uint8), kind="segmentation", ignore_index=255
    )
    assert (marked.labels == 255).sum() == (PIXELS == 2).sum()
    assert Predictions.from_logits(Z, Y - 100 * (Y == 2), ignore_index=-98).labels.min() == -98


class JaxLike:
    """Gives itself to NumPy by ``__array__``, as JAX does; cannot be written to, and converts by ``astype``."""

    def __init__(self, array, name=None):
        self.array, self.dtype = array, np.dtype(array.dtype) if name is None else type("dtype", (), {"name": name})

    def __array__(self, dtype=None, copy=None):
        if not isinstance(self.dtype, np.dtype):
            raise TypeError("NumPy has no such type")
        fixed = self.array.view()
        fixed.setflags(write=False)
        return fixed

    def astype(self, dtype):
        return JaxLike(self.array.astype(dtype))


class TensorFlowLike:
    """Gives an array only by ``numpy()``."""

    def __init__(self, array):
        self.array = array

    def numpy(self):
        return self.array


class DlpackLike:
    """Gives memory only by the DLPack protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [JaxLike, TensorFlowLike, DlpackLike, torch.tensor, np.ndarray.tolist])
def test_arrays_of_other_frameworks(wrap):
    p = Predictions.from_logits(wrap(Z), wrap(Y), ids=wrap(np.arange(5)), objectness=wrap(Y / 4))
    assert np.array_equal(p.logits, Z)
    assert np.array_equal(p.labels, Y)
    assert [b.logits.tolist() for b in p.batches(4)] == [Z[:4].tolist(), Z[4:].tolist()]


def test_torch_with_gradients_without_copies_and_in_bfloat16():
    z, y = batch()
    p = Predictions.from_logits(z.requires_grad_(), y)
    assert p.logits.__array_interface__["data"][0] == z.data_ptr()
    rough = z.detach().bfloat16()
    assert Predictions.from_logits(rough, y).logits.dtype == np.float32
    assert np.array_equal(Predictions.from_logits(rough, y).logits, rough.float().numpy())
    assert np.array_equal(Predictions.from_logits(z.t().contiguous().t(), y).logits, z.detach().numpy())


@pytest.mark.parametrize("wrap", [lambda a: a, TensorFlowLike], ids=["jax", "tensorflow"])
def test_bfloat16_of_other_frameworks_becomes_float32(wrap):
    p = Predictions.from_logits(wrap(JaxLike(Z, "bfloat16")), Y)
    assert p.logits.dtype == np.float32
    assert np.array_equal(p.logits, Z.astype(np.float32))


def test_jax_itself():
    jnp = pytest.importorskip("jax.numpy")
    assert np.array_equal(Predictions.from_logits(jnp.asarray(Z), jnp.asarray(Y)).logits, Z.astype(np.float32))
    assert Predictions.from_logits(jnp.asarray(Z, "bfloat16"), jnp.asarray(Y)).logits.dtype == np.float32


def test_tensorflow_itself():
    tf = pytest.importorskip("tensorflow")
    assert np.array_equal(Predictions.from_logits(tf.constant(Z), tf.constant(Y)).logits, Z)
    assert Predictions.from_logits(tf.cast(Z, "bfloat16"), tf.constant(Y)).logits.dtype == np.float32


def test_samples_are_those_of_numpy():
    p = Predictions.from_logits(
        Z, Y, ids=np.arange(5), groups={"g": list("abcde")}, class_names=["x", "y", "z"], split="test"
    )
    for index in (
        slice(1, 4),
        slice(None, None, -2),
        [3, 0, 3],
        np.array([-1, 2]),
        torch.tensor([2, 1]),
        Y == 1,
        list(Y == 0),
    ):
        taken = p.samples(index)
        rows = np.asarray(index) if not isinstance(index, slice) else index
        assert np.array_equal(taken.logits, Z[rows])
        assert np.array_equal(taken.ids, np.arange(5)[rows])
        assert np.array_equal(taken.groups["g"], np.array(list("abcde"))[rows])
        assert (taken.class_names, taken.split) == (("x", "y", "z"), "test")
    assert np.shares_memory(p.samples(slice(2)).logits, Z)
    for index, message in (
        (slice(3, 3), "at least one, got none of 5"),
        (Y == 7, "at least one, got none of 5"),
        ([0, 5], "samples must lie in 0..4, got 5"),
        ([-6], "samples must lie in 0..4, got -6"),
        (2, r"row numbers or a mask \[5\], got int64 \[\]"),
        ([True, False], r"a mask \[5\], got bool \[2\]"),
        ([0.0], "got float64"),
    ):
        with pytest.raises(ValueError, match=message):
            p.samples(index)


def test_batches_cover_everything_once_and_are_of_bounded_size():
    p = Predictions.from_logits(IMAGES, PIXELS, kind="segmentation", ids=["x", "y"])
    assert [b.ids.tolist() for b in p.batches(1)] == [["x"], ["y"]]
    wide = np.zeros((9, 1 << 20), np.float16)
    assert [len(b) for b in Predictions.from_logits(wide, np.zeros(9, int)).batches()] == [4, 4, 1]
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


def test_checking_needs_no_memory_of_the_size_of_the_data():
    p = np.full((1 << 18, 8), 0.125, np.float32)
    y, right = np.zeros(len(p), np.int64), np.ones(len(p), bool)
    tracemalloc.start()
    Predictions.from_probabilities(p, y)
    Predictions.from_logits(p, y)
    Predictions.from_confidence(p[:, 0], right)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < p.nbytes / 8


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
