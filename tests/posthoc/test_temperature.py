"""Temperature scaling: the optimum by brute force, cases without one, grids the slow way."""

import math

import numpy as np
import pytest
import torch

from calibrant.posthoc import TemperatureScaling
from tests.helpers.calibrators import drawn
from tests.reference import metrics as metrics_reference


def nll(z, y, temperature):
    return float(torch.nn.functional.cross_entropy(z / temperature, y))


@pytest.mark.parametrize(("size", "classes", "scale"), [(500, 3, 3.0), (700, 11, 0.3), (301, 2, 1.0), (97, 40, 20.0)])
def test_temperature_is_the_minimiser(size, classes, scale):
    z, y = drawn(size, classes, size, scale=scale)
    scaling = TemperatureScaling().fit(z, y)
    low, high = 1e-3, 1e3  # golden section, in the logarithm
    for _ in range(200):
        a, b = low * (high / low) ** 0.382, low * (high / low) ** 0.618
        low, high = (low, b) if nll(z, y, a) < nll(z, y, b) else (a, high)
    assert scaling.temperature_ == pytest.approx(low, rel=1e-6)
    assert abs(scaling.gradient_) < 1e-8
    t = torch.tensor(scaling.temperature_, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.cross_entropy(z / t, y).backward()
    assert abs(float(t.grad)) < 1e-8
    assert scaling.passes_ <= 8
    assert torch.equal(scaling.transform(z), z / scaling.temperature_)


@pytest.mark.parametrize("offset", [1e6, -1e6])
def test_a_common_offset_changes_nothing(offset):
    z, y = drawn(400, 5, 0, scale=2.0)
    plain, moved = TemperatureScaling().fit(z, y), TemperatureScaling().fit(z + offset, y)
    assert moved.temperature_ == pytest.approx(plain.temperature_, rel=1e-8)


def test_temperature_where_there_is_no_minimiser():
    z = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)).double() * 3
    right = TemperatureScaling().fit(z, z.argmax(1))  # the rule of succession: sure of 51 in 52
    assert float((z / right.temperature_).softmax(1).amax(1).mean()) == pytest.approx(51 / 52, abs=1e-3)
    widest = float((z.amax(1) - z.amin(1)).max())
    assert TemperatureScaling().fit(z, z.argmin(1)).temperature_ == pytest.approx(1e6 * widest)
    for scaling in (right, TemperatureScaling().fit(1e4 * z, z.argmax(1)), TemperatureScaling().fit(z, z.argmin(1))):
        assert not scaling.converged_
        assert scaling.passes_ <= 8
    assert TemperatureScaling().fit(1e4 * z, z.argmax(1)).temperature_ == 1  # sure enough already: never above 1
    assert TemperatureScaling().fit(torch.ones(5, 3), torch.tensor([0, 1, 2, 0, 1])).temperature_ == 1
    one = TemperatureScaling().fit(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    assert math.isfinite(one.temperature_)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 0.3, 1e4])
def test_heavy_tails_and_odd_scales_take_eight_passes_at_most(dtype, scale):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        honest = rng.standard_t(1.5, size=(int(rng.choice([20, 300])), int(rng.choice([2, 9]))))
        y = torch.from_numpy((honest + rng.gumbel(size=honest.shape)).argmax(1))
        z = torch.from_numpy(scale * honest).to(dtype)
        scaling = TemperatureScaling().fit(z, y)
        t = torch.tensor(scaling.temperature_, dtype=torch.float64, requires_grad=True)
        torch.nn.functional.cross_entropy(z.double() / t, y).backward()
        assert scaling.passes_ <= 8
        assert not scaling.converged_ or abs(float(t.grad)) < 1e-8


def test_float32_and_float64_agree():
    """A seed for which the float32 slope has the wrong sign near the root."""
    rng = np.random.default_rng(381)
    honest = 2 * rng.standard_normal((1000, 3))
    y = torch.from_numpy((honest + rng.gumbel(size=honest.shape)).argmax(1))
    z = torch.from_numpy(honest.astype(np.float32)).repeat(200, 1)  # enough of it to begin in float32
    single, double = TemperatureScaling().fit(z, y.repeat(200)), TemperatureScaling().fit(z.double(), y.repeat(200))
    assert single.converged_
    assert single.temperature_ == pytest.approx(double.temperature_, rel=1e-10)


@pytest.mark.parametrize("order", ["drawn", "by class", "right ones first"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_rows_begin_at_the_root_of_some(dtype, order):
    z, y = drawn(40_009, 7, 5, scale=2.5)
    z = z.to(dtype)
    if order != "drawn":
        rows = (y if order == "by class" else z.argmax(1) != y).int().argsort(stable=True)
        z, y = z[rows], y[rows]
    scaling = TemperatureScaling().fit(z, y)
    t = torch.tensor(scaling.temperature_, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.cross_entropy(z.double() / t, y).backward()
    assert abs(float(t.grad)) < 1e-12
    assert scaling.passes_ <= 3


def test_many_rows_of_which_some_say_nothing():
    """Where the rows that it would begin with are all right, the search begins without them."""
    z, y = drawn(2048 * 16, 3, 6, scale=2.0)
    y[::16] = z[::16].argmax(1)
    scaling = TemperatureScaling().fit(z, y)
    assert scaling.converged_
    assert scaling.passes_ <= 8


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e30])
def test_many_rows_of_any_scale_in_float32(scale):
    z, y = drawn(40_009, 4, 7, scale=2.5)
    z = (scale * z).float()
    scaling = TemperatureScaling().fit(z, y)
    expected = TemperatureScaling().fit(z.double(), y)
    assert scaling.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    assert scaling.temperature_ == pytest.approx(2.5 * scale, rel=0.02)


def test_a_few_rows_of_another_scale():
    z = torch.tensor([[0.0, 1.0]] * 10 + [[0.0, 1e4]])
    scaling = TemperatureScaling().fit(z, torch.tensor([1] * 7 + [0] * 3 + [1]))
    assert scaling.converged_
    assert scaling.passes_ <= 8
    assert scaling.temperature_ == pytest.approx(1 / math.log(7 / 3))


@pytest.mark.parametrize("scale", [1e-3, 0.5, 2.0])
def test_the_rule_of_succession(scale):
    z = scale * np.random.default_rng(0).standard_normal((1000, 50))
    sure = TemperatureScaling().fit(z, z.argmax(1)).predict_proba(z).max(1)
    assert (1 - sure).mean() == pytest.approx(1 / 1002, rel=0.02)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_ties_leave_a_doubt_that_no_temperature_takes(scale):
    """Every label has the largest logit, and some share it: the confidence wanted is never reached."""
    z = torch.tensor([[1.0, 1.0, 0.0], [3.0, 0.0, 0.0], [2.0, 2.0, 2.0], [0.0, 5.0, 1.0]] * 5, dtype=torch.float64)
    scaling = TemperatureScaling().fit(scale * z, torch.tensor([0, 0, 1, 1] * 5))
    assert 1e-20 * scale <= scaling.temperature_ <= scale
    probabilities = scaling.predict_proba(scale * z)
    np.testing.assert_allclose(probabilities[:4, :2], [[0.5, 0.5], [1, 0], [1 / 3, 1 / 3], [0, 1]], atol=1e-2)


@pytest.mark.slow
def test_grids_and_ece_by_the_slow_way():
    z, y = drawn(130, 5, 4, scale=2.5)
    for grid, temperatures in (
        ("lr", [0.25, 0.5, 0.75, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.5, 3]),
        ("mbls", [i / 10 for i in range(1, 101)]),
        ([0.7, 1.9, 4.0], [0.7, 1.9, 4.0]),
    ):
        by_nll = min(temperatures, key=lambda t: nll(z, y, t))
        assert TemperatureScaling(grid=grid).fit(z, y).temperature_ == pytest.approx(by_nll)
        right = (z.argmax(1) == y).numpy()
        errors = [metrics_reference.ece((z / t).softmax(1).amax(1).numpy(), right) for t in temperatures]
        found = TemperatureScaling("ece", grid=grid).fit(z, y)
        assert found.objective_ == pytest.approx(min(errors))
        assert found.temperature_ == pytest.approx(temperatures[int(np.argmin(errors))])
    for wrong in ({"objective": "auc"}, {"grid": "x"}, {"grid": []}, {"grid": [0.0]}, {"objective": "ece", "bins": 0}):
        with pytest.raises(ValueError, match=r"objective|grid|bins"):
            TemperatureScaling(**wrong).fit(z, y)


def test_temperature_of_saturated_logits():
    """One-hot logits of 1e4, 70% right: the NLL is least where the confidence is 0.7."""
    y = torch.arange(1000) % 5
    predicted = torch.where(torch.arange(1000) % 10 < 7, y, (y + 1) % 5)
    z = 1e4 * torch.nn.functional.one_hot(predicted, 5).double()
    scaling = TemperatureScaling().fit(z, y)
    assert scaling.converged_
    assert float((z / scaling.temperature_).softmax(1).amax(1).mean()) == pytest.approx(0.7, abs=1e-6)
