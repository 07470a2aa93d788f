"""The exponentials of the compiled passes against NumPy's, over the whole range that they promise."""

import numba
import numpy as np
import pytest

from calibrant._numba import exp32, exp64

#: One process compiles what these tests call, not each of them.
pytestmark = pytest.mark.xdist_group("numba")


@numba.njit
def exponentials(x32, x64, out32, out64):
    for i in range(len(x32)):
        out32[i] = exp32(x32[i])
        out64[i] = exp64(x64[i])


def test_relative_errors_are_those_that_the_head_of_the_file_promises():
    x = np.random.default_rng(0).uniform(-87, 0, 100_001)
    x[:3] = 0.0, -1e-9, -86.9
    x32 = x.astype(np.float32)
    out32, out64 = np.empty_like(x32), np.empty_like(x)
    exponentials(x32, 8 * x, out32, out64)
    assert out32[0] == out64[0] == 1.0
    np.testing.assert_allclose(out32, np.exp(x32.astype(np.float64)), rtol=3e-7)
    np.testing.assert_allclose(out64, np.exp(8 * x), rtol=1e-15)


def test_what_is_smaller_counts_as_the_smallest():
    out32, out64 = np.empty(2, np.float32), np.empty(2)
    exponentials(np.array([-87.0, -1e9], np.float32), np.array([-708.0, -1e9]), out32, out64)
    assert out32[0] == out32[1] > 0
    assert out64[0] == out64[1] > 0
