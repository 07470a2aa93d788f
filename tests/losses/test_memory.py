"""Losses that remember samples: CaPE's targets from earlier predictions, CRL's counts, SAT's running targets by id."""

import io

import numpy as np
import pytest
import torch

from calibrant import lens
from calibrant import losses as L
from calibrant.losses.cape import NEVER, bin_accuracy, kernel_accuracy
from tests.helpers.errors import facts
from tests.helpers.loss_cases import batch, gradient
from tests.reference import losses as R

FORMS = [{"bins": 4}, {"form": "kernel", "bandwidth": 0.15}, {"form": "kernel", "bandwidth": 0.3, "window": 3}]


def past_of(z):
    """Confidence of the largest probability, by the reference."""
    return R.softmax(z.numpy()).max(1)


@pytest.mark.parametrize("parameters", FORMS, ids=str)
def test_value_and_gradient_follow_the_reference_over_epochs(parameters):
    """Four epochs in two batches each; epochs 1 and 3 calibrate, by the predictions of the epoch before."""
    samples, classes = 11, 4
    loss = L.CaPE(start=1, period=2, reduction="sum", **parameters)
    _, y = batch(samples, classes, seed=9)
    past = {}
    for epoch in range(4):
        z, _ = batch(samples, classes, seed=epoch, scale=1.5)
        for ids in torch.arange(samples).split(6):
            logits = z[ids].requires_grad_()
            value = loss(logits, y[ids], ids=ids)
            (slope,) = torch.autograd.grad(value, logits)
            expected = R.cross_entropy(z[ids].detach().numpy(), y[ids].numpy())
            total = expected["fidelity"].sum()
            if epoch % 2:
                t = R.empirical_probability(**past, **parameters)[ids]
                p, predicted = z[ids].softmax(1), z[ids].argmax(1, keepdim=True)
                r = p.gather(1, predicted).squeeze(1)
                total = float(-(t * r.log().numpy() + (1 - t) * (1 - r).log().numpy()).sum())
                others = p.scatter(1, predicted, 0.0) / (1 - r)[:, None]
                effective = (others * (1 - torch.tensor(t))[:, None]).scatter(1, predicted, torch.tensor(t)[:, None])
                torch.testing.assert_close(slope, p - effective, rtol=1e-10, atol=1e-13)
            assert value.item() == pytest.approx(total, rel=1e-11)
            loss.update(logits, y[ids], ids=ids)
        past = {"confidence": past_of(z), "correct": (z.argmax(1) == y).numpy()}
        loss.end_epoch()


@pytest.mark.parametrize("size", [1, 2, 14, 15, 16, 200])
def test_estimates_are_those_of_the_reference_with_ties(size):
    random = np.random.default_rng(size)
    confidence = random.integers(1, 40, size) / 40
    correct = random.integers(0, 2, size)
    r, c = torch.tensor(confidence), torch.tensor(correct)
    np.testing.assert_allclose(bin_accuracy(r, c, 15), R.empirical_probability(confidence, correct), rtol=1e-12)
    for window in (1, 5, 500):
        expected = R.empirical_probability(confidence, correct, form="kernel", bandwidth=0.05, window=window)
        np.testing.assert_allclose(kernel_accuracy(r, c, 0.05, window), expected, rtol=1e-11, atol=1e-15)


def remembering(z, y, **parameters):
    """A loss in a calibration epoch after an epoch with these predictions."""
    loss = L.CaPE(**parameters)
    loss.update(z, y, ids=torch.arange(len(y)))
    loss.end_epoch()
    return loss


def test_epochs_calibrate_from_start_on_and_then_one_in_period():
    z, y = batch()
    loss, calibrates = L.CaPE(start=2, period=3), []
    for _ in range(9):
        calibrates.append(len(loss.memory.targets) > 0)
        loss.update(z, y, ids=torch.arange(7))
        loss.end_epoch()
    assert [epoch for epoch, active in enumerate(calibrates) if active] == [2, 5, 8]


def test_samples_that_were_never_recorded_are_trained_by_cross_entropy():
    z, y = batch(9, 4)
    loss = L.CaPE(bins=1, reduction="none")
    loss.update(z[:3], y[:3], ids=torch.tensor([0, 2, 5]))
    loss.end_epoch()
    assert 0 < loss.memory.targets[0] < 1
    ids = torch.tensor([0, 1, 2, 3, 4, 5, 6, 70, 8])
    plain = L.CrossEntropy(reduction="none")(z, y)
    differs = loss(z, y, ids=ids) != plain
    assert loss.memory.targets.tolist()[1] == NEVER
    assert set(differs.nonzero().flatten().tolist()) == {0, 2, 5}


def test_ignored_positions_are_not_recorded():
    z, y = batch()
    y[2] = -100
    loss = remembering(z, y)
    assert (loss.memory.confidence == NEVER).nonzero().flatten().tolist() == [2]


def test_memory_is_saved_and_restored_in_the_middle_of_an_epoch():
    z, y = batch()
    ids = torch.tensor([4, 0, 2, 9, 1, 3, 6])
    loss = L.CaPE(period=2, bins=3)
    loss.update(z, y, ids=ids)
    loss.end_epoch()
    loss.update(z[:3].flip(1), y[:3], ids=ids[:3])
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    resumed = L.CaPE(period=2, bins=3)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for _ in range(3):
        assert torch.equal(resumed(z, y, ids=ids), loss(z, y, ids=ids))
        for each in (loss, resumed):
            each.update(z.roll(1, 0), y, ids=ids)
            each.end_epoch()
    assert torch.equal(resumed.memory.targets, loss.memory.targets)
    assert len(loss.memory.targets) == 0  # epoch 4 does not calibrate
    assert all(bool(torch.isfinite(value).all()) for value in loss.state_dict().values())


def test_ids_are_asked_for_where_they_are_needed():
    z, y = batch()
    loss = L.CaPE()
    torch.testing.assert_close(loss(z, y), L.CrossEntropy()(z, y))
    with pytest.raises(ValueError, match=facts("CaPE")):
        loss.update(z, y)
    with pytest.raises(ValueError, match=facts("[6]")):
        loss.update(z, y, ids=torch.arange(6))
    loss = remembering(z, y)
    with pytest.raises(ValueError, match=facts("CaPE")):
        loss(z, y)
    with pytest.raises(ValueError, match=facts("CaPE")):
        loss.update(z, z.softmax(1), ids=torch.arange(7))


def test_the_lens_sees_the_empirical_probability_at_the_predicted_class():
    z, y = batch()
    loss, ids = remembering(z, y, bins=2), torch.arange(7)
    seen, predicted = lens(loss, z, y, ids=ids), z.argmax(1, keepdim=True)
    torch.testing.assert_close(seen.effective.gather(1, predicted).squeeze(1), loss.memory.targets)
    torch.testing.assert_close(seen.effective.sum(1), torch.ones(7, dtype=torch.float64))


def test_a_retained_graph_keeps_the_history_it_was_built_with():
    z, y = batch()
    loss, ids = L.CRL(), torch.arange(7)
    loss.update(z, y, ids=ids)
    leaf = z.clone().requires_grad_()
    value = loss(leaf, y, ids=ids)
    (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
    first = first.clone()
    for _ in range(3):
        loss.update(z, y.roll(1), ids=ids)
        loss.end_epoch()
    torch.testing.assert_close(torch.autograd.grad(value, leaf)[0], first)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.arange(7) - 2, facts("-2")),
        (torch.arange(7) + 0.7, facts("float32")),
        ([0] * 7, facts("list")),
        (torch.arange(6), facts("[6]")),
    ],
    ids=str,
)
def test_bad_ids(ids, message):
    z, y = batch()
    loss = L.CRL()
    with pytest.raises(ValueError, match=message):
        loss.update(z, y, ids=ids)
    loss.update(z, y, ids=torch.arange(7))
    with pytest.raises(ValueError, match=message):
        loss(z, y, ids=ids)


def test_history_counts_by_id_and_survives_a_checkpoint():
    z, y = batch()
    loss, ids = L.CRL(), torch.tensor([4, 0, 2, 9, 1, 3, 6])
    for _ in range(3):
        loss.update(z, y, ids=ids)
        loss.end_epoch()
    right = z.argmax(1) == y
    expected = torch.zeros(10, dtype=torch.int64)
    expected[ids] = 3 * right.long()
    assert torch.equal(loss.history.counts, expected)
    assert torch.equal(loss.history.correctness(ids), right.double())
    resumed = L.CRL()
    resumed.load_state_dict(loss.state_dict())
    assert torch.equal(resumed(z, y, ids=ids), loss(z, y, ids=ids))
    assert resumed(z, y, ids=ids) != L.CrossEntropy()(z, y)


def test_ranking_losses_without_history_are_cross_entropy_and_ask_for_ids_with_one():
    z, y = batch()
    for loss in (L.CRL(), L.ACLS(indicator="ranking")):
        torch.testing.assert_close(loss(z, y), L.CrossEntropy()(z, y))
        with pytest.raises(ValueError, match=facts("ids")):
            loss.update(z, y)
        loss.update(z, y, ids=torch.arange(7))
        with pytest.raises(ValueError, match=facts("ids")):
            loss(z, y)


@pytest.mark.parametrize("many", [10**8 + 1, 10**12, 1e18])
def test_a_history_is_bounded_before_memory_is_taken(many):
    with pytest.raises(ValueError, match=facts("num_samples")):
        L.CRL(num_samples=many)


def test_correctness_is_normalised_by_minimum_and_epochs():
    loss = L.CRL(num_samples=4)
    loss.history.counts += torch.tensor([1, 3, 5, 2])
    loss.history.epochs += 5
    assert loss.history.correctness(torch.tensor([0, 1, 2, 3])).tolist() == [0.0, 0.5, 1.0, 0.25]
    loss.history.counts.fill_(5)
    assert loss.history.correctness(torch.tensor([0, 3])).tolist() == [0.0, 0.0]


def test_crl_with_the_margin_condition_smooths_where_acls_would():
    z, y = batch()
    top, low = z.amax(1, keepdim=True), z.amin(1, keepdim=True)
    p, predicted = z.softmax(1), z.argmax(1, keepdim=True)
    r = p.gather(1, predicted)
    f = (-r * p).scatter(1, predicted, r * (1 - r))  # gradient of r
    active = (top - z > 6.0).scatter(1, predicted, top - low > 6.0)
    assert active.any()
    assert not active.all()
    loss = L.CRL(strength=0.7, indicator="margin", margin=6.0, reduction="sum")
    slope = gradient(loss, z, y) - gradient(L.CrossEntropy(reduction="sum"), z, y)
    torch.testing.assert_close(slope, 0.7 * f * active, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("selective", [False, True])
def test_running_targets_change_before_the_loss_from_the_start_epoch_on(selective):
    """Five epochs in two batches each, against the released code's steps: epochs 0 and 1 are cross-entropy."""
    samples, classes, momentum = 9, 4, 0.7
    loss = L.SelfAdaptive(momentum, start=2, selective=selective, reduction="mean")
    _, y = batch(samples, classes, seed=9)
    targets = torch.nn.functional.one_hot(y, classes).double()
    for epoch in range(5):
        z, _ = batch(samples, classes + selective, seed=epoch, scale=1.5)
        for ids in torch.arange(samples).split(5):
            logits, before = z[ids], loss.memory.targets.clone()
            value = loss(logits.clone().requires_grad_(), y[ids], ids=ids)
            assert torch.equal(loss.memory.targets, before)  # a call changes nothing
            log_p = logits.log_softmax(1)
            if epoch < 2:
                expected = torch.nn.functional.cross_entropy(logits[:, :classes], y[ids])
            else:
                targets[ids] = momentum * targets[ids] + (1 - momentum) * logits[:, :classes].softmax(1)
                t = targets[ids]
                if selective:
                    right = t.gather(1, y[ids, None]).squeeze(1)
                    each = -right * log_p.gather(1, y[ids, None]).squeeze(1) - (1 - right) * log_p[:, -1]
                    expected = each.mean()
                else:
                    weights = t.amax(1) * len(ids) / t.amax(1).sum()
                    expected = (weights * -(t * log_p).sum(1)).mean()
            torch.testing.assert_close(value.detach(), expected, rtol=1e-6, atol=0)  # targets are stored in float32
            loss.update(logits, y[ids], ids=ids)
        if epoch < 2:
            assert not loss.memory.targets.numel()
        else:
            torch.testing.assert_close(loss.memory.targets.double(), targets, rtol=1e-6, atol=1e-7)
        loss.end_epoch()


def test_weights_of_self_adaptive_training_are_those_of_the_positions_that_count():
    """A position that is ignored takes no share; the weights of the others have the mean 1."""
    z, y = batch(6, 4)
    loss, ids = L.SelfAdaptive(0.5, start=0, reduction="none"), torch.arange(6)
    loss.update(z.flip(1), y, ids=ids)
    y[2] = -100
    values = loss(z, y, ids=ids)
    kept = ids[ids != 2]
    torch.testing.assert_close(values[kept], loss(z[kept], y[kept], ids=kept))
    assert values[2] == 0
    cross_entropies = torch.tensor([float(loss(z[i : i + 1], y[i : i + 1], ids=ids[i : i + 1])) for i in kept.tolist()])
    weights = values[kept] / cross_entropies.double()  # alone, a sample has the weight 1
    assert weights.mean().item() == pytest.approx(1.0, rel=1e-6)
    assert weights.max() - weights.min() > 0.1


def test_running_targets_are_saved_in_the_middle_of_an_epoch_and_begin_as_labels():
    z, y = batch(7, 4)
    ids = torch.tensor([4, 0, 2, 9, 1, 3, 6])
    loss = L.SelfAdaptive(0.8, start=1)
    loss.end_epoch()
    loss.update(z[:3], y[:3], ids=ids[:3])
    assert (loss.memory.targets[:, 0] == -1).nonzero().flatten().tolist() == [1, 3]
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    resumed = L.SelfAdaptive(0.8, start=1)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for each in (loss, resumed):
        each.update(z.flip(1), y, ids=ids)
    assert torch.equal(resumed.memory.targets, loss.memory.targets)
    assert resumed.finished == 1
    assert all(bool(torch.isfinite(value).all()) for value in loss.state_dict().values())
    new = L.SelfAdaptive(1.0, start=0, reduction="none")  # a momentum of 1 keeps the labels
    torch.testing.assert_close(new(z, y, ids=ids), L.CrossEntropy(reduction="none")(z, y), rtol=1e-13, atol=0)


def test_self_adaptive_training_asks_for_ids_and_keeps_its_classes():
    z, y = batch(7, 4)
    late, now, ids = L.SelfAdaptive(), L.SelfAdaptive(start=0), torch.arange(7)
    torch.testing.assert_close(late(z, y), L.CrossEntropy()(z, y))
    late.update(z, y)  # nothing to remember yet
    for call in (now, now.update):
        with pytest.raises(ValueError, match=facts("SelfAdaptive", "ids")):
            call(z, y)
        with pytest.raises(ValueError, match=facts("[6]")):
            call(z, y, ids=ids[:6])
    now.update(z, y, ids=ids)
    with pytest.raises(ValueError, match=facts("4", "5")):
        now(*batch(7, 5), ids=ids)


def test_the_lens_sees_the_running_target_and_what_is_left_for_abstaining():
    z, y = batch(7, 5)
    y, ids = y % 4, torch.arange(7)
    loss = L.SelfAdaptive(0.5, start=0, selective=True)
    loss.update(z, y, ids=ids)
    seen = lens(loss, z, y, ids=ids)
    p = z[:, :4].softmax(1)
    right = 0.25 + 0.75 * p.gather(1, y[:, None])  # two steps from the label
    expected = torch.zeros_like(z).scatter(1, y[:, None], right)
    expected[:, 4:] = 1 - right
    torch.testing.assert_close(seen.effective, expected, rtol=1e-6, atol=1e-7)
