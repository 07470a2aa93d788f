"""What holds for every calibrator: sane on odd data, scikit-learn's contract, streams, states, symmetries."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from calibrant import Predictions
from calibrant.posthoc import (
    EnsembleTemperatureScaling,
    HistogramBinning,
    IsotonicCalibration,
    LogitNorm,
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from calibrant.posthoc import base as posthoc_base
from tests.helpers.calibrators import METHODS, Y, Z, drawn, nll
from tests.helpers.errors import facts

KEEPING = ["isotonic top", "histogram top", "histogram mass top", "ensemble", "ensemble mse"]

every = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS.keys())

CASES = {
    "plain": (Z, Y),
    "single": (Z.float(), Y),
    "half": (Z.half(), Y),
    "bfloat": (Z.bfloat16(), Y),
    "class missing": (Z, torch.where(Y == 2, 1, Y)),
    "separable": (Z, Z.argmax(1)),
    "always wrong": (Z, Z.argmin(1)),
    "one class": (Z, torch.zeros_like(Y)),
    "constant": (torch.ones(7, 3), torch.tensor([0, 1, 2, 0, 1, 0, 0])),
    "constant class": (torch.cat([Z[:, :4], torch.ones(211, 1)], 1), Y),
    "one sample": (torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([1])),
    "one sample right": (torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([2])),
    "two classes": drawn(57, 2, 2),
    "1e4": (1e4 * Z, Y),
    "1e4 separable": (1e4 * Z.float(), Z.argmax(1)),
    "1e4 one class": (1e4 * Z, torch.zeros_like(Y)),
    "1e-6": (1e-6 * Z, Y),
    "1e30": (1e30 * Z, Y),
    "1e30 single": (1e30 * Z.float(), Y),
    "1e-30": (1e-30 * Z, Y),
    "all of single": (Z.float() / Z.float().abs().max() * 3.4e38, Y),
    "masked": (torch.cat([Z[:, :4].float(), torch.full((211, 1), -3.4e38)], 1), torch.where(Y == 4, 3, Y)),
    "huge rows": (torch.cat([Z[:205], 1e40 * Z[205:]]), Y),
    "more classes than samples": drawn(11, 23, 3),
    "images": (Z[:210].reshape(7, 30, 5).mT.reshape(7, 5, 6, 5), Y[:210].reshape(7, 6, 5)),
}


@every
@pytest.mark.parametrize("case", CASES)
def test_finite_and_sane_everywhere(make, case):
    z, y = CASES[case]
    fitted = make().fit(z, y)
    found, probabilities = fitted.transform(z), fitted.predict_proba(z)
    assert found.shape == z.shape
    assert found.dtype == (z.dtype if z.dtype in (torch.float32, torch.float64) else torch.float32)
    assert bool(torch.isfinite(found).all())
    assert torch.allclose(probabilities.sum(1), torch.ones_like(probabilities[:, 0]), atol=1e-5)
    restored = type(fitted)()
    restored.restore(json.loads(json.dumps(fitted.state())), fitted.n_classes_)
    assert torch.equal(restored.transform(z), found)


EXTREME = {
    "1e90": (1e90 * Z, Y),
    "1e-90": (1e-90 * Z, Y),
    "1e-300": (1e-300 * Z, Y),
    "denormal": (5e-324 * (100 * Z).round(), Y),
    "huge offset": (Z + 1e40, Y),
    "huge class": (torch.cat([Z[:, :4], torch.full((211, 1), 1e99, dtype=torch.float64)], 1), Y),
    "one huge row": (torch.cat([Z[:210], torch.tensor([[1e99, -1e99, 0.0, 1.0, 2.0]], dtype=torch.float64)]), Y),
    "1e90 one class": (1e90 * Z, torch.zeros_like(Y)),
    "1e90 separable": (1e90 * Z, Z.argmax(1)),
    "1e90 always wrong": (1e90 * Z, Z.argmin(1)),
}


@every
@pytest.mark.parametrize("case", EXTREME)
def test_logits_of_any_size_give_probabilities(make, case):
    """Whose logits are too far apart to be transformed in float32."""
    z, y = EXTREME[case]
    probabilities = make().fit(z, y).predict_proba(z)
    assert torch.allclose(probabilities.sum(1), torch.ones_like(probabilities[:, 0]), atol=1e-5)


@every
@pytest.mark.parametrize("size", [1.1e100, 1e160, 1e300, 1.7e308, -1e300])
def test_logits_whose_squares_are_no_numbers_are_refused(make, size):
    z = Z.clone()
    z[7, 3] = size
    with pytest.raises(ValueError, match=facts("logits", "1e+100")):
        make().fit(z, Y)
    with pytest.raises(ValueError, match=facts("logits")):
        make().fit(Z, Y).transform(z)


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("case", CASES)
def test_the_predicted_class_stays(name, case):
    z, y = CASES[case]
    z = z if z.dtype == torch.float64 else z.float()
    assert torch.equal(METHODS[name]().fit(z, y).transform(z).argmax(1), z.argmax(1))
    other = torch.randn(301, z.shape[1], generator=torch.Generator().manual_seed(5)).to(z.dtype)
    assert torch.equal(METHODS[name]().fit(z, y).transform(other).argmax(1), other.argmax(1))


@pytest.mark.parametrize("name", ["vector", "vector as printed", "matrix", "matrix as printed", "ensemble"])
@pytest.mark.parametrize("case", CASES)
def test_the_nll_is_never_above_temperature_scaling(name, case):
    z, y = CASES[case]
    before = nll(z, y)
    tempered = nll(TemperatureScaling().fit(z.double(), y).transform(z.double()), y)
    after = nll(METHODS[name]().fit(z.double(), y).transform(z.double()), y)
    assert after <= tempered + 1e-9
    assert after <= before + 1e-9


@every
def test_the_contract_of_scikit_learn(make):
    first = make()
    parameters = first.get_params()
    assert vars(first) == parameters
    twin = clone(first)
    assert twin is not first
    assert twin.get_params() == parameters
    assert first.set_params(**parameters) is first
    assert first.fit(Z, Y) is first
    assert first.get_params() == parameters
    learned = {k for k in vars(first) if k.endswith("_")}
    assert learned == vars(first).keys() - parameters.keys()
    assert first.learned in learned
    other, labels = drawn(97, 3, 8)
    assert torch.equal(first.fit(other, labels).transform(other), make().fit(other, labels).transform(other))
    with pytest.raises(ValueError, match=facts("3", "5")):
        first.transform(Z)
    with pytest.raises(ValueError, match=facts("fitted")):
        make().state()
    with pytest.raises(ValueError, match=facts("nothing")):
        make().set_params(nothing=1)


@every
def test_streamed_from_a_file_as_from_arrays(make, tmp_path, monkeypatch):
    z, y = Z.float().numpy(), Y.numpy()
    expected = make().fit(z, y)
    path = tmp_path / "val.npz"
    Predictions.from_logits(z, y, split="val").save(path)
    monkeypatch.setattr(posthoc_base, "PARTS", (40 * 5, 40 * 5))  # many parts
    found = make().fit(Predictions.open(path))
    assert found.passes_ >= 1
    np.testing.assert_allclose(found.transform(z), expected.transform(z), rtol=1e-4, atol=1e-5)
    assert np.allclose(found.transform(Predictions.open(path)).logits, found.transform(z))


@every
def test_the_number_of_threads_changes_nothing(make, monkeypatch):
    monkeypatch.setattr(posthoc_base, "PARTS", (40 * 5, 40 * 5))
    found = []
    for count in ("1", "2", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", count)
        found.append(make().fit(Z.float(), Y).transform(Z))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@every
def test_ignored_labels_count_nowhere(make):
    noise = torch.randn(2, 5, 7, 4, generator=torch.Generator().manual_seed(6)).double()
    z, y = Z[:210].reshape(7, 30, 5).mT.reshape(7, 5, 6, 5), Y[:210].reshape(7, 6, 5)
    plain = make().fit(z, y)
    flat = torch.cat([Z[:210], noise.movedim(1, 3).reshape(-1, 5)])
    labels = torch.cat([Y[:210], torch.full((56,), 255)])
    ignoring = make().fit(flat, labels, ignore_index=255)
    assert torch.allclose(ignoring.transform(Z), plain.transform(Z), rtol=1e-5, atol=1e-6)
    late = make().fit(flat.flip(0), labels.flip(0), ignore_index=255)  # the first rows are all ignored
    assert torch.allclose(late.predict_proba(Z), plain.predict_proba(Z), rtol=1e-4, atol=2e-5)
    with pytest.raises(ValueError, match=facts("labels")):
        make().fit(Z, torch.full_like(Y, 255), ignore_index=255)


UNFIT = [
    (lambda: (Z, None), "labels"),
    (lambda: (Z, Y[:-1]), "labels", "[211]"),
    (lambda: (Z, Y + 5), "labels", "0..4"),
    (lambda: (Z, Y.double()), "labels"),
    (lambda: (Z * math.nan, Y), "logits"),
    (lambda: (Z[:0], Y[:0]), "logits"),
    (lambda: (Z[:, :1], 0 * Y), "logits", "C", "2"),
    (lambda: (Z.long(), Y), "logits"),
    (lambda: (Predictions.from_logits(Z.numpy(), Y.numpy()), Y), "labels"),
    (lambda: (Predictions.from_logits(Z.numpy(), Y.numpy(), split="test"),), "test"),
    (lambda: (Predictions.from_confidence([0.5], [True]),), "confidence"),
]


@pytest.mark.parametrize("make", [*METHODS.values(), TemperatureScaling, LogitNorm])
def test_what_cannot_be_fitted_on_is_refused(make):
    for data, *named in UNFIT:
        with pytest.raises(ValueError, match=facts(*named)):
            make().fit(*data())
    unfitted = make()
    with pytest.raises(ValueError, match=facts("fitted")):
        unfitted.score(Z) if isinstance(unfitted, LogitNorm) else unfitted.transform(Z)


@every
@settings(max_examples=12)
@given(order=st.permutations(range(4)), seed=st.integers(0, 3))
def test_permuting_the_classes_permutes_the_result(make, order, seed):
    z, y = drawn(83, 4, seed, scale=2.0, skew=0.3)
    order = torch.tensor(order)
    places = order.argsort()  # class k goes to places[k]
    expected = make().fit(z, y).predict_proba(z)[:, order]
    found = make().fit(z[:, order], places[y]).predict_proba(z[:, order])
    assert torch.allclose(found, expected, rtol=1e-4, atol=2e-5)


@every
@given(seed=st.integers(0, 5))
def test_the_order_of_samples_does_not_matter(make, seed):
    shuffled = torch.randperm(211, generator=torch.Generator().manual_seed(seed))
    found, expected = make().fit(Z[shuffled], Y[shuffled]), make().fit(Z, Y)
    assert torch.allclose(found.predict_proba(Z), expected.predict_proba(Z), rtol=1e-4, atol=2e-5)


HOSTILE = [
    ("vector", {}, "weight"),
    ("vector", {"weight": [1, 2, 3], "bias": [1, 2]}, "bias"),
    ("vector", {"weight": [1, 2, math.nan], "bias": [1, 2, 3]}, "weight"),
    ("vector", {"weight": "abc", "bias": [1, 2, 3]}, "weight"),
    ("vector", {"weight": [True, 2, 3], "bias": [1, 2, 3]}, "weight"),
    ("matrix", {"weight": [1, 2, 3], "bias": [1, 2, 3]}, "weight"),
    ("matrix", {"weight": [[1], [2, 3], [4]], "bias": [1, 2, 3]}, "weight"),
    ("matrix", {"weight": [[1, 2, 1e999]] * 3, "bias": [1, 2, 3]}, "weight"),
    ("matrix", {"weight": [[1, 2, 1e308]] * 3, "bias": [1, 2, 3]}, "weight"),
    ("matrix", {"weight": [[1, 2, 3]] * 3, "bias": [1, 2, -1e200]}, "bias"),
    ("vector", {"weight": [1, 2, 10**400], "bias": [1, 2, 3]}, "weight"),
    ("temperature", {"temperature": 5e-324}, "temperature"),
    ("temperature", {"temperature": -2}, "temperature"),
    ("temperature", {"temperature": 1e-60}, "temperature"),
    ("ensemble", {"temperature": 0, "tempered": 1, "plain": 0, "uniform": 0}, "temperature"),
    ("ensemble", {"temperature": 1e60, "tempered": 1, "plain": 0, "uniform": 0}, "temperature"),
    ("ensemble", {"temperature": 1, "tempered": 2, "plain": -1, "uniform": 0}, "uniform"),
    ("ensemble", {"temperature": 1, "tempered": 0, "plain": 0, "uniform": 1}, "uniform"),
    ("ensemble", {"temperature": 1, "tempered": 0.5, "plain": 0.5}, "uniform"),
    ("isotonic", {"lengths": [1, 1], "knots": [0.1, 0.2], "shares": [0, 1]}, "3"),
    ("isotonic", {"lengths": [], "knots": [], "shares": []}, "3"),
    ("isotonic", {"lengths": [1e18], "knots": [0.1], "shares": [0]}, "1000000000000000000"),
    ("isotonic", {"lengths": [1.5], "knots": [0.1], "shares": [0]}, "lengths"),
    ("isotonic", {"lengths": [2], "knots": [0.2, 0.1], "shares": [0, 1]}, "knots"),
    ("isotonic", {"lengths": [2], "knots": [-0.1, 0.2], "shares": [0, 1]}, "knots"),
    ("isotonic", {"lengths": [2], "knots": [0.1, 7], "shares": [0, 1]}, "knots"),
    ("isotonic", {"lengths": [2], "knots": [0.1, 0.2], "shares": [1, 0]}, "shares"),
    ("isotonic", {"lengths": [2], "knots": [0.1, 0.2], "shares": [0, 2]}, "shares"),
    ("histogram", {"lengths": [2], "edges": [0.5, 0.9], "shares": [0, 1]}, "edges"),
    ("histogram", {"lengths": [2], "edges": [-0.5, 1], "shares": [0, 1]}, "edges"),
    ("histogram", {"lengths": [2], "edges": [0.5, 1], "shares": [0, -1]}, "shares"),
    ("histogram", {"lengths": [0], "edges": [], "shares": []}, "lengths"),
]


@pytest.mark.parametrize(("name", "state", "fact"), HOSTILE)
def test_a_hostile_state_is_refused(name, state, fact):
    with pytest.raises(ValueError, match=facts(fact)):
        ({"temperature": TemperatureScaling} | METHODS)[name]().restore(state, 3)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (VectorScaling(strength=-1), "strength"),
        (VectorScaling(strength="much"), "strength"),
        (MatrixScaling(off_diagonal=math.inf), "off_diagonal"),
        (MatrixScaling(intercept=math.nan), "intercept"),
        (MatrixScaling(strength=True), "strength"),
        (IsotonicCalibration("both"), "mode"),
        (HistogramBinning(0), "bins"),
        (HistogramBinning(2.5), "bins"),
        (HistogramBinning(binning="log"), "binning"),
        (HistogramBinning(mode="all"), "mode"),
        (EnsembleTemperatureScaling("ece"), "objective"),
    ],
)
def test_bad_parameters_are_refused_by_fit(bad, words):
    with pytest.raises(ValueError, match=facts(words)):
        bad.fit(Z, Y)
