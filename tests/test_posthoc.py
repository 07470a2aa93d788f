"""Temperature scaling and logit normalisation: the optimum by brute force, cases without one, hand-worked scores."""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from calibrant import Predictions
from calibrant.posthoc import LogitNorm, TemperatureScaling
from tests.reference import metrics as reference


def drawn(size, classes, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    honest = 2 * torch.randn(size, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
    return scale * honest, labels


def nll(z, y, temperature):
    return float(torch.nn.functional.cross_entropy(z / temperature, y))


@pytest.mark.parametrize(("size", "classes", "scale"), [(500, 3, 3.0), (700, 11, 0.3), (301, 2, 1.0), (97, 40, 20.0)])
def test_temperature_is_the_minimiser(size, classes, scale):
    z, y = drawn(size, classes, scale, size)
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
    z, y = drawn(400, 5, 2.0, 0)
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


def test_arrays_of_every_make():
    z, y = drawn(300, 4, 2.0, 1)
    z, y = z.numpy(), y.numpy()
    whole = TemperatureScaling().fit(z, y).temperature_
    frozen = z.copy()
    frozen.setflags(write=False)
    for same, labels in (
        (z[::-1], y[::-1]),
        (z.astype(">f8"), y.astype(">i8")),
        (np.asfortranarray(z), y),
        (frozen, y),
    ):
        assert TemperatureScaling().fit(same, labels).temperature_ == pytest.approx(whole, rel=1e-9)
    tracked = torch.from_numpy(z).requires_grad_()
    assert TemperatureScaling().fit(tracked, y).temperature_ == whole


def test_inside_a_pipeline_of_scikit_learn():
    z, y = drawn(300, 4, 2.0, 1)
    pipe = make_pipeline(TemperatureScaling())
    assert np.allclose(pipe.fit(z.numpy(), y.numpy()).transform(z.numpy()), TemperatureScaling().fit(z, y).transform(z))
    assert np.allclose(pipe.fit_transform(z.numpy(), y.numpy()), pipe.transform(z.numpy()))
    chosen = clone(TemperatureScaling("ece", grid=np.array([1.0, 2.0]), bins=np.int64(10)))
    assert chosen.fit(z, y).temperature_ == 2
    assert "grid=array" in repr(chosen)


def masks():
    """Images with a border of void, and the same pixels as rows."""
    rng = np.random.default_rng(3)
    honest = 2 * rng.standard_normal((7, 4, 5, 6))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    labels[:, :, 0] = 255
    rows = np.moveaxis(honest, 1, -1)[labels != 255]
    return 2 * honest, labels, 2 * rows, labels[labels != 255]


@pytest.mark.parametrize(
    "make", [TemperatureScaling, LogitNorm, lambda: TemperatureScaling("ece"), lambda: TemperatureScaling(grid="mbls")]
)
def test_masks_and_files_are_fitted_as_rows_are(make, tmp_path):
    z, y, rows, labels = masks()
    found = [
        make().fit(rows, labels),
        make().fit(z, y, ignore_index=255),
        make().fit(torch.from_numpy(z), torch.from_numpy(y), ignore_index=255),
        make().fit(Predictions.from_logits(z, y, kind="segmentation", ignore_index=255)),
        make().fit(Predictions.from_logits(rows, labels)),
    ]
    Predictions.from_logits(rows, labels).save(tmp_path / "rows.parquet")
    found.append(make().fit(Predictions.open(tmp_path / "rows.parquet")))
    p = np.exp(rows) / np.exp(rows).sum(1, keepdims=True)
    if not isinstance(found[0], LogitNorm):
        found.append(make().fit(Predictions.from_probabilities(p, labels)))
    if isinstance(found[0], LogitNorm):
        assert all(one.p_ == found[0].p_ and one.aurc_ == pytest.approx(found[0].aurc_) for one in found)
    else:
        learned = [one.temperature_ for one in found]
        assert learned == pytest.approx([learned[0]] * len(learned), rel=1e-9)


def test_masks_keep_their_layout():
    z, y, rows, labels = masks()
    scaling, norm = TemperatureScaling().fit(rows, labels), LogitNorm().fit(rows, labels)
    assert np.allclose(scaling.transform(z), z / scaling.temperature_)
    assert scaling.predict_proba(z).sum(1) == pytest.approx(np.ones((7, 5, 6)))
    data = Predictions.from_logits(z, y, kind="segmentation", ignore_index=255, ids=list("abcdefg"))
    changed = scaling.transform(data)
    assert changed.kind == "segmentation"
    assert changed.ids.tolist() == list("abcdefg")
    assert np.allclose(changed.logits, z / scaling.temperature_)
    assert norm.score(z).shape == (7, 5, 6)
    assert np.array_equal(norm.score(data), norm.score(z))
    assert np.array_equal(norm.score(Predictions.from_logits(rows, labels)), norm.score(rows))


@pytest.mark.parametrize("make", [TemperatureScaling, LogitNorm])
def test_what_cannot_be_fitted_on_is_refused(make):
    z, y = drawn(20, 3, 1.0, 0)
    for data, message in (
        (Predictions.from_logits(z, y, split="test"), "marked split='test'"),
        (Predictions.from_confidence([0.5], [True]), "confidences alone"),
    ):
        with pytest.raises(ValueError, match=message):
            make().fit(data)
    for logits, labels, message in (
        (z, None, "labels are needed"), (z, y[:-1], "labels must be"), (z, y + 5, "labels must lie in"),
        (z, y.double(), "whole numbers"), (z * torch.nan, y, "finite"), (z[:0], y[:0], "logits must be"),
        (Predictions.from_logits(z, y), y, "part of the predictions"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            make().fit(logits, labels)
    with pytest.raises(ValueError, match="is not fitted"):
        make().score(z) if make is LogitNorm else make().transform(z)


def test_grids_and_ece_by_the_slow_way():
    z, y = drawn(600, 5, 2.5, 4)
    for grid, temperatures in (
        ("lr", [0.25, 0.5, 0.75, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.5, 3]),
        ("mbls", [i / 10 for i in range(1, 101)]),
        ([0.7, 1.9, 4.0], [0.7, 1.9, 4.0]),
    ):
        by_nll = min(temperatures, key=lambda t: nll(z, y, t))
        assert TemperatureScaling(grid=grid).fit(z, y).temperature_ == pytest.approx(by_nll)
        right = (z.argmax(1) == y).numpy()
        errors = [reference.ece((z / t).softmax(1).amax(1).numpy(), right) for t in temperatures]
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


def test_two_classes_cannot_be_ranked_by_a_norm():
    z, y = drawn(300, 2, 1.0, 9)
    assert LogitNorm().fit(z, y).fell_back_
    with pytest.raises(ValueError, match="powers"):
        LogitNorm(powers=[]).fit(z, y)


def test_normalised_score_by_hand():
    """v = (3, 0, -3) after centring; norms: p = 1: 6, p = 2: sqrt(18)."""
    z = torch.tensor([[4.0, 1.0, -2.0], [4.0, 1.0, -2.0]])
    norm = LogitNorm(powers=[1])
    norm.p_, norm.fell_back_ = 1, False
    assert norm.score(z).tolist() == pytest.approx([0.5, 0.5])
    norm.p_ = 2
    assert norm.score(z + 100).tolist() == pytest.approx([3 / math.sqrt(18)] * 2)
    plain = LogitNorm(powers=[2], centre=False)
    plain.p_, plain.fell_back_ = 2, False
    assert plain.score(z)[0].item() == pytest.approx(4 / math.sqrt(21))


def test_p_is_the_one_with_the_lowest_aurc():
    z, y = drawn(600, 6, 1.0, 3)
    wrong = z.argmax(1) != y
    z = z * torch.where(wrong, 1.8, 1.0)[:, None].double()
    norm = LogitNorm().fit(z, y)
    v = z - z.mean(1, keepdim=True)
    correct = (~wrong).numpy()
    expected = {}
    for p in range(1, 11):
        score = v.amax(1) / v.abs().pow(p).sum(1).pow(1 / p)
        expected[p] = reference.aurc(score.numpy(), correct)
        assert norm.aurc_[p] == pytest.approx(expected[p], abs=1e-12)
    assert norm.p_ == min(expected, key=expected.get)
    assert not norm.fell_back_


def test_falls_back_to_the_softmax_when_no_p_beats_it():
    z, y = drawn(800, 6, 1.0, 4)
    norm = LogitNorm(powers=[1]).fit(z, y)
    assert norm.fell_back_
    assert norm.p_ is None
    torch.testing.assert_close(norm.score(z), z.softmax(1).amax(1), rtol=1e-15, atol=0)


def test_rows_without_direction_score_lowest():
    norm = LogitNorm(powers=[2])
    norm.p_, norm.fell_back_ = 2, False
    assert norm.score(torch.tensor([[5.0, 5.0, 5.0], [1.0, 0.0, 0.0]]))[0] == 0


@pytest.mark.parametrize("method", [TemperatureScaling, LogitNorm])
def test_bad_input(method):
    z, y = torch.zeros(3, 2), torch.tensor([0, 1, 0])
    for bad_z, bad_y, words in [
        (z[:, :1], y, "C >= 2"),
        (z.long(), y, "floating point"),
        (torch.full((3, 2), math.nan), y, "finite"),
        (z, torch.tensor([0, 1, 2]), r"0\.\.1"),
        (z, y[:2], r"\[3\]"),
        (z, y.float(), "whole numbers"),
    ]:
        with pytest.raises(ValueError, match=words):
            method().fit(bad_z, bad_y)
    unfitted = method()
    with pytest.raises(ValueError, match="not fitted"):
        unfitted.transform(z) if method is TemperatureScaling else unfitted.score(z)
