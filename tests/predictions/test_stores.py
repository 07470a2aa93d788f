"""Arrays of every framework as columns in memory."""

import numpy as np
import pytest
import torch

from calibrant import Predictions
from tests.helpers.errors import facts
from tests.helpers.loss_cases import batch
from tests.helpers.predictions import P, Q, Y, Z


def test_logits_that_look_like_probabilities_are_remarked_upon_and_used_as_they_are(tmp_path):
    for suffix in (".npz", ".csv"):
        Predictions.from_logits(Q, [0, 1, 2, 0]).save(tmp_path / f"a{suffix}")
        opened = Predictions.open(tmp_path / f"a{suffix}")
        assert (len(opened.remarks), opened.holds) == (1, "logits")
        assert "name them probabilities" in opened.remarks[0]
        assert all(batch.remarks == opened.remarks for batch in opened.batches(3))
    assert "softmax" in Predictions.from_logits(Q, [0, 1, 2, 0]).remarks[0]
    (logarithms,) = Predictions.from_logits(np.log([0.5, 0.25, 0.75]), [0, 1, 1]).remarks
    assert "exp()" in logarithms
    (decisions,) = Predictions.from_probabilities(np.eye(3)[np.arange(30) % 3], np.zeros(30, int)).remarks
    assert "predicted classes" in decisions
    assert Predictions.from_probabilities([0.0, 1.0] * 3, [0, 1] * 3).remarks == ()
    assert Predictions.from_logits(np.array([-0.5, 0.25]), [0, 1]).remarks == ()
    assert Predictions.from_logits(np.log(Q + 0.1), [0, 1, 2, 0]).remarks == ()
    assert Predictions.from_logits(Q[:, ::-1] * [1, 0.5, 1], [0, 1, 2, 0]).remarks == ()
    assert Predictions.from_probabilities(Q, [0, 1, 2, 0]).remarks == ()
    assert Predictions.from_confidence([0.5], [1]).remarks == ()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floating_types_are_kept_and_byte_order_is_ours(dtype):
    assert Predictions.from_logits(Z.astype(dtype), Y).logits.dtype == dtype
    swapped = Predictions.from_logits(Z.astype(np.dtype(dtype).newbyteorder(">")), Y.astype(">i2"))
    assert swapped.logits.dtype == np.dtype(dtype)
    assert swapped.logits.dtype.isnative
    assert swapped.labels.dtype == np.int64
    assert np.array_equal(swapped.logits, Z.astype(dtype))
    assert Predictions.from_probabilities(P.astype(dtype), Y).probabilities.dtype == dtype


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


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_names_the_classes_of_its_columns(library):
    """Labels that are text find their column by name, whatever the order; categories as well."""
    frames = pytest.importorskip(library)
    probabilities = frames.DataFrame({"dog": [0.7, 0.1, 0.2], "cat": [0.2, 0.8, 0.2], "fox": [0.1, 0.1, 0.6]})
    labels = frames.Series(["dog", "cat", "fox"])
    categories = labels.astype("category") if library == "pandas" else labels.cast(frames.Categorical)
    for truth in (labels, categories):
        predictions = Predictions.from_probabilities(probabilities, truth)
        assert predictions.class_names == ("dog", "cat", "fox")
        assert predictions.labels.tolist() == [0, 1, 2]


def test_numbered_columns_out_of_order_are_not_guessed():
    frames = pytest.importorskip("pandas")
    scores = frames.DataFrame({"1": [0.0, 1.0], "0": [1.0, 0.0]})
    with pytest.raises(ValueError, match=facts("logits", "1, 0", "order")):
        Predictions.from_logits(scores, [0, 1])
    assert Predictions.from_logits(scores[["0", "1"]], [0, 1]).class_names is None
    assert Predictions.from_logits(scores.rename(columns=int), [0, 1]).class_names is None
