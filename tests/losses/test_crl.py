"""CRL with the indicator of ACLS; its memory: counts by sample id, what they switch on, and what bad ids get."""

import pytest
import torch

from calibrant import losses as L
from tests.helpers.errors import facts
from tests.helpers.loss_cases import batch, gradient


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
        (torch.arange(7) + 0.7, "whole numbers from 0, got a torch.float32 tensor"),
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


def test_correctness_is_normalised_by_minimum_and_epochs():
    loss = L.CRL(num_samples=4)
    loss.history.counts += torch.tensor([1, 3, 5, 2])
    loss.history.epochs += 5
    assert loss.history.correctness(torch.tensor([0, 1, 2, 3])).tolist() == [0.0, 0.5, 1.0, 0.25]
    loss.history.counts.fill_(5)
    assert loss.history.correctness(torch.tensor([0, 3])).tolist() == [0.0, 0.0]


def test_ranking_losses_without_history_are_cross_entropy_and_ask_for_ids_with_one():
    z, y = batch()
    for loss in (L.CRL(), L.ACLS(indicator="ranking")):
        torch.testing.assert_close(loss(z, y), L.CrossEntropy()(z, y))
        with pytest.raises(ValueError, match=r"remembers samples by id: call update\(logits, target, ids=...\)"):
            loss.update(z, y)
        loss.update(z, y, ids=torch.arange(7))
        with pytest.raises(ValueError, match=r"ranks samples by id: call it with ids=..."):
            loss(z, y)
        with pytest.raises(ValueError, match=facts("[6]")):
            loss(z, y, ids=torch.arange(6))
        with pytest.raises(ValueError, match=facts("-3")):
            loss.update(z, y, ids=torch.arange(7) - 3)


def test_a_history_is_bounded_before_memory_is_taken():
    for many in (10**8 + 1, 10**12, 1e18):
        with pytest.raises(ValueError, match=facts("num_samples", "0")):
            L.CRL(num_samples=many)
