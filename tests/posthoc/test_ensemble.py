"""Ensemble temperature scaling against the best of the simplex and known mixtures."""

import numpy as np
import pytest
import torch

from calibrant.posthoc import EnsembleTemperatureScaling, TemperatureScaling
from tests.helpers.calibrators import Z, drawn, nll
from tests.reference import posthoc as reference


@pytest.mark.parametrize("objective", ["nll", "mse"])
@pytest.mark.parametrize("noise", [0, 40])
def test_weights_are_the_best_of_the_simplex(objective, noise):
    z, y = drawn(151, 4, 15, scale=3.0)
    y[:noise] = (y[:noise] + 1) % 4
    scaling = EnsembleTemperatureScaling(objective).fit(z, y)
    assert scaling.temperature_ == TemperatureScaling().fit(z, y).temperature_
    parts = [reference.ets(z.numpy(), scaling.temperature_, w) for w in np.eye(3).tolist()]

    def value(w):
        q = sum(a * part for a, part in zip(w, parts, strict=True))
        if objective == "nll":
            return -np.log(q[np.arange(151), y]).mean()
        return np.square(q - np.eye(4)[y]).sum(1).mean()

    best, grid = value(scaling.weights_), [value(w) for w in reference.simplex(60)]
    assert best <= min(grid) + 1e-12
    assert best >= min(grid) - 1e-3
    assert scaling.weights_.sum() == pytest.approx(1)
    assert scaling.weights_.min() >= 0
    assert scaling.converged_
    expected = reference.ets(z.numpy(), scaling.temperature_, scaling.weights_.tolist())
    np.testing.assert_allclose(scaling.predict_proba(z), expected, atol=1e-12)


def test_weights_of_known_mixtures():
    generator = torch.Generator().manual_seed(16)
    z, y = drawn(40009, 5, 16)
    plain = EnsembleTemperatureScaling().fit(3 * z, y)
    assert plain.temperature_ == pytest.approx(3, abs=0.1)
    assert plain.weights_[0] > 0.9  # only the temperature was wrong
    noisy = torch.where(
        torch.rand(len(y), generator=generator) < 0.4, torch.randint(5, y.shape, generator=generator), y
    )
    mixed = EnsembleTemperatureScaling().fit(z, noisy)
    assert mixed.temperature_ > 1.5
    found = mixed.predict_proba(z)
    truth = 0.6 * z.softmax(1) + 0.4 / 5
    assert float((found - truth).abs().mean()) < 0.02
    assert nll(found.log(), noisy) < nll(TemperatureScaling().fit(z, noisy).transform(z), noisy) - 0.01


def test_the_uniform_part_never_stands_alone():
    """Labels that follow the lowest logit: no part but the uniform one is any good, and the prediction still stays."""
    for objective in ("nll", "mse"):
        scaling = EnsembleTemperatureScaling(objective).fit(Z, Z.argmin(1))
        assert scaling.weights_[:2].sum() > 0
        assert torch.equal(scaling.transform(Z.float()).argmax(1), Z.argmax(1))
        assert float(scaling.predict_proba(Z).amax()) < 0.21


def test_labels_that_no_part_but_the_uniform_allows():
    """Logits of 1e4: all but the predicted class have probability 0, with T as without."""
    z = 1e4 * torch.eye(3).double()[torch.arange(50) % 3]
    y = torch.where(torch.arange(50) < 10, (torch.arange(50) + 1) % 3, torch.arange(50) % 3)
    scaling = EnsembleTemperatureScaling().fit(z, y)
    assert float(scaling.predict_proba(z).amax(1).mean()) == pytest.approx(0.8, abs=1e-6)
