"""Scores against plain NumPy in float64, and what they must and must not see."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant.posthoc import LogitNorm, energy, margin, max_logit, msp, negative_entropy, normalised_max_logit
from tests.helpers.errors import facts

SCORES = {
    "msp": msp,
    "max_logit": max_logit,
    "margin": margin,
    "negative_entropy": negative_entropy,
    "energy": energy,
    "normalised_max_logit": lambda z: normalised_max_logit(z, 3),
}


def plain(name, row):
    """One row at a time, as the definitions read."""
    shifted = row - row.max()
    p = np.exp(shifted) / np.exp(shifted).sum()
    top = np.sort(p)[::-1]
    centred = row - row.mean()
    return {
        "msp": top[0],
        "max_logit": row.max(),
        "margin": top[0] - top[1],
        "negative_entropy": sum(x * np.log(x) for x in p if x > 0),
        "energy": row.max() + np.log(np.exp(shifted).sum()),
        "normalised_max_logit": centred.max() / (np.abs(centred) ** 3).sum() ** (1 / 3),
    }[name]


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(("n", "classes", "scale"), [(7, 2, 1.0), (31, 5, 4.0), (13, 40, 0.1), (5, 3, 200.0)])
def test_scores_are_their_definitions(name, n, classes, scale):
    z = scale * np.random.default_rng(classes).standard_normal((n, classes))
    expected = [plain(name, row) for row in z]
    assert np.allclose(SCORES[name](z), expected, rtol=1e-12, atol=1e-15)
    assert SCORES[name](torch.from_numpy(z)).dtype == torch.float64
    assert np.allclose(SCORES[name](z.astype(np.float32)), [plain(name, r.astype(np.float64)) for r in z.astype("f4")])


@pytest.mark.parametrize("name", SCORES)
def test_masks_have_a_score_at_every_pixel(name):
    z = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    found = SCORES[name](z)
    assert found.shape == (2, 4, 5)
    assert float(found[1, 2, 3]) == pytest.approx(plain(name, z[1, :, 2, 3]))


@pytest.mark.parametrize("name", SCORES)
def test_large_logits_are_finite(name):
    z = np.array([[1e4, -1e4, 0.0], [0.0, 0.0, 0.0], [-1e30, 1e30, 1e29], [3e4, 3e4, -3e4]])
    assert np.isfinite(SCORES[name](z)).all()
    assert torch.isfinite(SCORES[name](torch.tensor([[6e4, -6e4, 0.0]], dtype=torch.float16))).all()


@given(offset=st.floats(-1e3, 1e3), seed=st.integers(0, 99))
def test_what_the_softmax_does_not_see(offset, seed):
    z = np.random.default_rng(seed).standard_normal((4, 6))
    for name, score in SCORES.items():
        moved = score(z + offset)
        if name in ("max_logit", "energy"):
            assert np.allclose(moved, score(z) + offset)
        else:
            assert np.allclose(moved, score(z), rtol=1e-9)


@given(seed=st.integers(0, 30), p=st.integers(1, 12), centre=st.booleans())
def test_normalised_max_logit_for_every_p(seed, p, centre):
    z = np.random.default_rng(seed).standard_normal((3, 7))
    v = z - z.mean(1, keepdims=True) if centre else z
    expected = v.max(1) / (np.abs(v) ** p).sum(1) ** (1 / p)
    assert np.allclose(normalised_max_logit(z, p, centre=centre), expected, rtol=1e-10)
    assert np.allclose(LogitNorm(powers=[p], centre=centre).scores(torch.from_numpy(z))[p], expected, rtol=1e-10)


@pytest.mark.parametrize("bad", [[[1.0]], [[1, 2]], [1.0, 2.0], [[np.nan, 1.0]], np.zeros((0, 3))])
def test_what_is_no_logits_is_refused(bad):
    for score in SCORES.values():
        with pytest.raises(ValueError, match=facts("logits")):
            score(bad)
    with pytest.raises(ValueError, match=facts("p")):
        normalised_max_logit([[1.0, 2.0]], 0)
