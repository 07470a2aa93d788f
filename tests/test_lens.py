"""The lens against the closed forms of ACLS Table 2 in tests/reference/smoothing.py."""

import pytest
import torch

from calibrant import lens
from calibrant import losses as L
from calibrant._lens import activity
from tests.helpers.errors import facts
from tests.helpers.loss_cases import COUNTS, batch
from tests.reference.smoothing import exact, printed

TABLE_2 = [
    L.LabelSmoothing(0.2),
    L.LabelSmoothing(0.2, spread="others"),
    *(L.FLSD(variant=v) for v in ("released", "paper")),
    *(L.CPC(variant=v) for v in ("released", "paper")),
    *(L.MDCA(variant=v) for v in ("released", "paper")),
    *(L.MbLS(margin=4.0, variant=v) for v in ("released", "paper")),
    *(L.CRL(variant=v) for v in ("released", "paper")),
    L.CRL(indicator="margin", margin=4.0),
    *(
        L.ACLS(margin=4.0, variant=v, smoothing=s, indicator=i)
        for v in ("released", "paper")
        for s in ("adaptive", "constant")
        for i in ("margin", "none", "ranking")
    ),
    L.ACLS(margin=4.0, variant="paper", gradient="eq12"),
    L.ACLS(margin=4.0, variant="paper", gradient="eq12", smoothing="constant"),
]


def prepared(loss):
    if getattr(loss, "history", None) is not None and not len(loss.history.counts):
        loss.history.counts, loss.history.epochs = torch.tensor(COUNTS), loss.history.epochs + 5
    return {"ids": torch.arange(7)} if getattr(loss, "history", None) is not None else {}


@pytest.mark.parametrize("loss", TABLE_2, ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_closed_forms_of_table_2_equal_autograd(loss, seed):
    z, y = batch(seed=seed)
    extra = prepared(loss)
    seen, form = lens(loss, z, y, **extra), exact(loss, z, y, **extra)
    torch.testing.assert_close(form.f * form.indicator, seen.smoothing, rtol=1e-10, atol=1e-13)
    always = isinstance(loss, (L.LabelSmoothing, L.FLSD, L.CPC, L.MDCA)) or getattr(loss, "indicator", "") == "none"
    if always:
        assert (form.indicator == 1).all()
    else:
        assert torch.equal(form.indicator.bool() & (form.f != 0), seen.active)


@pytest.mark.parametrize("loss", TABLE_2, ids=repr)
def test_effective_label_is_p_minus_the_gradient(loss):
    z, y = batch()
    extra = prepared(loss)
    seen = lens(loss, z, y, **extra)
    leaf = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(len(y) * loss(leaf, y, **extra), leaf)
    torch.testing.assert_close(seen.effective, z.softmax(1) - slope, rtol=1e-10, atol=1e-13)
    predicted = torch.nn.functional.one_hot(z.argmax(1), 5).bool()
    rebuilt = torch.where(predicted, seen.target - seen.smoothing, seen.target + seen.smoothing)
    torch.testing.assert_close(rebuilt, seen.effective)


def test_table_2_of_acls_and_label_smoothing_as_printed():
    """LS: eps (1 - 1/C) and eps/C for a right prediction; ACLS Eq. 12: exactly Eq. 10 with the indicator of Eq. 11."""
    z = torch.tensor([[12.0, 5.0, 1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([0])
    seen = lens(L.LabelSmoothing(0.2), z, y)
    torch.testing.assert_close(seen.smoothing, z.new_tensor([[0.15, 0.05, 0.05, 0.05]]))
    eq12 = L.ACLS(margin=10.0, variant="paper", gradient="eq12")
    seen = lens(eq12, z, y)
    torch.testing.assert_close(seen.smoothing, z.new_tensor([[0.1 * 2, 0.0, 0.01 * 1, 0.01 * 2]]))
    assert seen.active.tolist() == [[True, False, True, True]]
    form = printed(eq12, z, y)
    torch.testing.assert_close(form.f * form.indicator, seen.smoothing)
    assert lens(L.MbLS(margin=10.0, variant="paper"), z, y).active.tolist() == [[False, False, True, True]]


def test_lens_of_any_callable_and_of_soft_targets_and_images():
    z, y = batch()
    mine, theirs = lens(L.LabelSmoothing(0.1), z, y), lens(torch.nn.CrossEntropyLoss(label_smoothing=0.1), z, y)
    torch.testing.assert_close(mine.effective, theirs.effective, atol=1e-13, rtol=0)
    marked = torch.where(torch.arange(7) == 3, -100, y)
    plain = lens(torch.nn.CrossEntropyLoss(), z, marked)
    assert not plain.active.any()
    assert not lens(L.CrossEntropy(), z, y).active.any()
    soft = z.flip(0).softmax(1)
    torch.testing.assert_close(lens(L.SoftTargetCrossEntropy(), z, soft).effective, soft)
    image = z.t().reshape(1, 5, 7)
    labels = y.clone()
    labels[2] = -100
    seen = lens(L.LabelSmoothing(0.1), image, labels.view(1, 7))
    torch.testing.assert_close(seen.effective[0, :, 4], mine.effective[4])
    assert not seen.active[0, :, 2].any()
    with pytest.raises(ValueError, match=facts("mean")):
        lens(torch.nn.CrossEntropyLoss(reduction="none"), z, y)
    with pytest.raises(ValueError, match=facts("lens", "list")):
        lens(L.CrossEntropy(), [[1.0, 2.0]], y)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_lens_looks_at_gradients_also_where_they_are_switched_off(off):
    z, y = batch()
    expected = lens(L.ACLS(margin=4.0), z, y)
    with off():
        seen = lens(L.ACLS(margin=4.0), z.clone(), y.clone())
        found = activity({"ce": L.CrossEntropy()}, [(z.clone(), y.clone())])
    torch.testing.assert_close(seen.effective, expected.effective)
    assert found["ce"].active == 0


def test_lens_takes_the_predicted_class_from_the_logits():
    z, y = torch.tensor([[0.0, 1e-17, -9.0]], dtype=torch.float64), torch.tensor([0])  # softmax ties, the logits do not
    loss = L.ACLS(margin=2.0, variant="paper")
    form = exact(loss, z, y)
    torch.testing.assert_close(lens(loss, z, y).smoothing, form.f * form.indicator)


def test_activity_leaves_out_ignored_samples_and_passes_ids_on():
    z, y = batch()
    loss = L.CRL()
    loss.history.counts, loss.history.epochs = torch.tensor(COUNTS), torch.tensor(5)
    ids = torch.arange(7)
    marked = torch.where(ids == 2, -100, y)
    found = activity({"crl": loss}, [(z, marked, ids)])["crl"]
    assert found.samples == 6
    assert found.active > 0
    with pytest.raises(ValueError, match=facts("activity")):
        activity({"ce": L.CrossEntropy()}, [(z.view(1, 5, 7), y.view(1, 7))])


def test_activity_counts_samples_and_flips():
    # Row 0: gap 12 beyond margin 6, active. Row 1: inactive. Row 2: ACLS lowers the top below the second (Limitation).
    z = torch.tensor([[12.0, 0.0, 0.0], [2.0, 1.0, 0.0], [20.0, 19.9, 0.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 0])
    found = activity({"acls": L.ACLS(margin=6.0), "ce": L.CrossEntropy()}, [(z[:2], y[:2]), (z[2:], y[2:])])
    assert found["acls"].samples == 3
    assert found["acls"].active == pytest.approx(2 / 3)
    assert found["acls"].flipped == found["acls"].flipped_correct == pytest.approx(1 / 3)
    assert found["ce"].active == found["ce"].flipped == 0
    with pytest.raises(ValueError, match=facts("activity")):
        activity({"ce": L.CrossEntropy()}, [])
    with pytest.raises(ValueError, match=facts("step")):
        activity({"ce": L.CrossEntropy()}, [(z, y)], step=0.0)
