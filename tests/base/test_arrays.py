"""Arrays of any framework as NumPy's, their precision, and the one way to cut them."""

import numpy as np
import pytest
import torch

from calibrant.base.arrays import (
    as_kind_of,
    as_numpy,
    cache_chunks,
    class_rows,
    in_threads,
    map_levels,
    precision_of,
    round_to,
    row_slices,
    sum_along,
    sum_products,
)
from tests.helpers.errors import facts


def test_nothing_is_copied_that_need_not_be():
    array = np.arange(6.0).reshape(2, 3)
    for values in (array, torch.from_numpy(array), torch.from_numpy(array).requires_grad_()):
        taken, ours = as_numpy("logits", values)
        assert np.shares_memory(taken, array)
        assert not ours
    assert as_numpy("logits", [[1.0, 2.0]])[1]


def test_what_is_no_array_is_refused_by_its_name():
    with pytest.raises(ValueError, match=facts("labels")):
        as_numpy("labels", np.ma.masked_array([1, 2], mask=[True, False]))
    with pytest.raises(ValueError, match=facts("labels", "list")):
        as_numpy("labels", [[1, 2], [3]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rounding_to_a_precision_is_torchs(dtype):
    values = np.random.default_rng(0).normal(size=1001)
    name = str(dtype).removeprefix("torch.")
    assert precision_of(torch.zeros(1, dtype=dtype)) == name
    expected = torch.from_numpy(values).float().to(dtype) if name == "bfloat16" else torch.from_numpy(values).to(dtype)
    np.testing.assert_array_equal(round_to(values, name), expected.double().numpy())


def test_a_tensor_is_given_back_for_a_tensor():
    array = np.array([0.5, 2.0])
    assert as_kind_of([1.0], array) is array
    assert as_kind_of(torch.zeros(1, dtype=torch.float16), array).dtype == torch.float16
    assert as_kind_of(torch.zeros(1, dtype=torch.float16), array, keep_precision=True).dtype == torch.float64


def test_slices_cover_every_row_once():
    assert [list(range(7))[s] for s in row_slices(7, 3, limit=6)] == [[0, 1], [2, 3], [4, 5], [6]]
    assert len(list(row_slices(3, 100, limit=6))) == 3  # a row is never cut
    z = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    np.testing.assert_array_equal(np.concatenate(list(cache_chunks(z))), z)


def test_rows_of_images_have_their_classes_last():
    z = np.arange(2 * 3 * 2 * 2).reshape(2, 3, 2, 2)
    rows = class_rows(z)
    assert rows.shape == (8, 3)
    np.testing.assert_array_equal(rows[5], z[1, :, 0, 1])


def test_threads_keep_the_order():
    assert list(in_threads(lambda x: x * x, range(9))) == [x * x for x in range(9)]


def test_different_values_are_converted_once():
    calls = []
    texts = np.array([["b", "a"], ["b", "b"], ["c", "a"]])
    result = map_levels(texts, lambda text: calls.append(text) or ord(text), np.int64)
    assert (result.tolist(), result.dtype) == ([[98, 97], [98, 98], [99, 97]], np.int64)
    assert calls == ["a", "b", "c"]


@pytest.mark.parametrize("classes", [3, 7, 48, 100])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_row_has_the_same_sum_whatever_rows_are_beside_it(axis, classes):
    values = np.exp(np.random.default_rng(0).normal(size=(61, classes)))
    whole = np.ascontiguousarray(values.T) if axis == 0 else values
    for rows in (1, 2, 5):
        for start in range(0, 60, rows):
            part = whole[:, start : start + rows].copy() if axis == 0 else whole[start : start + rows].copy()
            stop = start + part.shape[1 - axis]
            assert sum_along(part, axis).tolist() == sum_along(whole, axis)[start:stop].tolist()
            assert sum_products(part, part, axis).tolist() == sum_products(whole, whole, axis)[start:stop].tolist()
