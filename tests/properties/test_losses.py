"""What must hold for every loss: the slow NumPy version, shapes, reductions, invariances, precision, errors."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from calibrant import losses as L
from tests.helpers.errors import facts
from tests.helpers.loss_cases import CASES, CLASSES, SAMPLES, batch, formula_gradient, gradient

every_case = pytest.mark.parametrize("case", CASES, ids=str)


#: Compiling takes seconds, so the compiler sees one configuration per method and variant.
COMPILED = list({(c.loss, c.parameters.get("variant")): c for c in reversed(CASES)}.values())


@every_case
def test_gradcheck(case):
    z, y = case.batch(4, CLASSES)
    if case.check.frozen:
        pytest.skip(
            "holds part of the loss constant by definition: its gradient is compared with the reference instead"
        )
    loss, extra = case.make(), case.extra(4)
    assert torch.autograd.gradcheck(lambda x: loss(x, y, **extra), z.requires_grad_())


@every_case
def test_second_derivative(case):
    z, y = case.batch(4, CLASSES)
    loss, extra = case.make(), case.extra(4)
    if not case.check.frozen:
        assert torch.autograd.gradgradcheck(lambda x: loss(x, y, **extra), z.requires_grad_(), atol=1e-4)


@every_case
def test_backward_twice_through_a_retained_graph(case):
    z, y = case.batch()
    z.requires_grad_()
    value = case.make()(z, y, **case.extra())
    first = torch.autograd.grad(value, z, retain_graph=True)[0].clone()
    torch.testing.assert_close(torch.autograd.grad(3 * value, z)[0], 3 * first)


@every_case
def test_adding_a_constant_to_the_logits(case):
    z, y = case.batch()
    loss, extra = case.make(), case.extra()
    here, there = loss(z, y, **extra), loss(z + 7.5, y, **extra)
    same = torch.allclose(here, there, rtol=1e-10, atol=1e-12)
    assert same == case.shift_invariant, "ACLS as released has no minimum; every other loss is invariant"


@every_case
def test_reductions_agree(case):
    z, y = case.batch()
    y[3] = -100
    extra = case.extra()
    none, total, mean = (case.make(reduction=r)(z, y, **extra) for r in ("none", "sum", "mean"))
    assert none.shape == y.shape
    assert none[3] == 0
    torch.testing.assert_close(none.sum(), total)
    torch.testing.assert_close(total / (SAMPLES - 1), mean)
    leaf = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(case.make(reduction="none")(leaf, y, **extra).sum(), leaf)
    torch.testing.assert_close(slope, gradient(case.make(reduction="sum"), z, y, **extra), rtol=1e-9, atol=1e-13)


@every_case
def test_segmentation_shape_equals_flattened_shape(case):
    n, height, width = 2, 3, 4
    flat, labels = case.batch(n * height * width, CLASSES, seed=3)
    labels[5] = labels[17] = 255
    image = flat.view(n, height, width, CLASSES).permute(0, 3, 1, 2).contiguous()
    shape = (n, height, width)
    loss = case.make(ignore_index=255)
    extra = case.extra(len(labels))
    spatial = {name: ids.view(shape) for name, ids in extra.items()}
    torch.testing.assert_close(loss(image, labels.view(shape), **spatial), loss(flat, labels, **extra))
    back = gradient(loss, image, labels.view(shape), **spatial).permute(0, 2, 3, 1).reshape(-1, CLASSES)
    torch.testing.assert_close(back, gradient(loss, flat, labels, **extra))
    assert (back[[5, 17]] == 0).all()


@every_case
def test_ignored_positions_count_nowhere(case):
    z, y = case.batch(9, CLASSES)
    keep = torch.tensor([True, False, True, True, False, True, True, True, True])
    marked = torch.where(keep, y, 255)
    loss, ids = case.make(ignore_index=255), case.extra(9)
    kept = {name: value[keep] for name, value in ids.items()}
    torch.testing.assert_close(loss(z, marked, **ids), loss(z[keep], y[keep], **kept))
    torch.testing.assert_close(gradient(loss, z, marked, **ids)[keep], gradient(loss, z[keep], y[keep], **kept))
    torch.testing.assert_close(formula_gradient(loss, z, marked, **ids)[keep], gradient(loss, z[keep], y[keep], **kept))


@every_case
def test_nothing_but_ignored_positions_is_zero_not_nan(case):
    z, y = case.batch()
    loss, extra = case.make(), case.extra()
    nowhere = torch.full_like(y, -100)
    for one in (loss, case.make(weight=torch.ones(case.classes, dtype=torch.float64))):
        assert one(z, nowhere, **extra) == 0
        assert (gradient(one, z, nowhere, **extra) == 0).all()


@every_case
def test_class_weights_act_on_the_fidelity_as_in_torch(case):
    if case.loss is L.LabelSmoothing or case.parameters.get("base") == "ls":
        pytest.skip("torch weights the smoothed part too: compared with torch directly")
    z, y = case.batch()
    weight = torch.tensor([1.0, 0.5, 2.0, 0.25, 1.5], dtype=torch.float64)[: case.classes]
    extra = case.extra()
    terms = case.make(reduction="none").terms(z, y, **extra)
    expected = (terms["fidelity"] * weight[y]).sum() / weight[y].sum() + terms["regulariser"].mean()
    torch.testing.assert_close(case.make(weight=weight)(z, y, **extra), expected)


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_computed_in_float32(case, dtype):
    z, y = case.batch()
    z = z.to(dtype)
    loss, extra = case.make(), case.extra()
    exact = loss(z.double(), y, **extra)
    value = loss(z.clone().requires_grad_(), y, **extra)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double().detach(), exact, rtol=2e-5, atol=2e-6)
    slope = gradient(loss, z, y, **extra)
    assert slope.dtype == dtype
    torch.testing.assert_close(
        slope.double(), gradient(loss, z.double(), y, **extra), rtol=2e-2 if dtype != torch.float32 else 1e-4, atol=2e-4
    )


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_logits_of_ten_thousand_are_finite(case, dtype):
    pattern = torch.tensor(
        [[1.0, -1.0, 0.0, 1.0, -1.0], [-1.0, -1.0, -1.0, -1.0, 1.0], [0.0] * 5, [1.0] * 5, [-1.0] * 5]
    )
    z = (1e4 * pattern).to(dtype)
    loss, extra = case.make(), case.extra(5)
    for y in (torch.tensor([0, 4, 0, 1, 2]), torch.tensor([1, 0, 3, 4, 0])):
        y = y % case.classes
        assert torch.isfinite(loss(z.clone().requires_grad_(), y, **extra))
        assert torch.isfinite(gradient(loss, z, y, **extra)).all()
        assert torch.isfinite(formula_gradient(loss, z, y, **extra)).all()


@every_case
def test_autocast_changes_nothing(case):
    z, y = case.batch()
    z = z.float()
    loss, extra = case.make(), case.extra()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside, slope = loss(z.clone().requires_grad_(), y, **extra), gradient(loss, z, y, **extra)
    torch.testing.assert_close(inside.detach(), loss(z, y, **extra), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(slope, gradient(loss, z, y, **extra))


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_compiles_without_graph_breaks(case):
    z, y = case.batch()
    y[2] = -100
    loss, extra = case.make(), case.extra()
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, t: loss(x, t, **extra), fullgraph=True, backend="aot_eager")
    leaf = z.clone().requires_grad_()
    value = compiled(leaf, y)
    torch.testing.assert_close(value.detach(), loss(z, y, **extra))
    torch.testing.assert_close(
        torch.autograd.grad(value, leaf)[0], gradient(loss, z, y, **extra), rtol=1e-9, atol=1e-13
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", {c.loss: c for c in COMPILED}.values(), ids=str)
def test_compiles_on_the_roads_of_the_plain_formula(case):
    z, y = case.batch()
    weight = torch.tensor([1.0, 0.5, 2.0, 0.25, 1.5], dtype=torch.float64)[: case.classes]
    loss, extra = case.make(reduction="none", weight=weight), case.extra()
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, t: loss(x, t, **extra).square().sum(), fullgraph=True, backend="aot_eager")
    leaf, plain = z.clone().requires_grad_(), z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(plain, y, **extra).square().sum(), plain)
    torch.testing.assert_close(torch.autograd.grad(compiled(leaf, y), leaf)[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ls", "acls"])
def test_compiles_with_inductor(name):
    z, y = batch()
    loss = L.get(name)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True)
    leaf = (4 * z).requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(compiled(leaf, y), leaf)[0], gradient(loss, 4 * z, y))


@every_case
def test_per_sample_losses_work_inside_vmap_and_grad(case):
    if not case.loss.method.per_sample or case.remembers or case.parameters.get("indicator") == "ranking":
        pytest.skip("the value of a sample depends on its batch")
    z, y = case.batch()
    loss = case.make()
    each = torch.func.vmap(torch.func.grad(lambda x, t: loss(x.unsqueeze(0), t.unsqueeze(0))))(z, y)
    torch.testing.assert_close(each, gradient(case.make(reduction="sum"), z, y), rtol=1e-9, atol=1e-13)
    values = torch.func.vmap(loss)(z, y)
    torch.testing.assert_close(values, case.make(reduction="none")(z, y))
    torch.testing.assert_close(loss(z[0], y[0]), values[0])
    assert case.make(reduction="none")(z[0], y[0]).dim() == 0


@every_case
def test_torch_func_grad_over_the_batch(case):
    z, y = case.batch()
    loss, extra = case.make(), case.extra()
    torch.testing.assert_close(
        torch.func.grad(lambda x: loss(x, y, **extra))(z), gradient(loss, z, y, **extra), rtol=1e-9, atol=1e-13
    )


@every_case
def test_inputs_are_left_alone_and_copies_agree(case):
    z, y = case.batch()
    before = z.clone(), y.clone()
    loss, extra = case.make(), case.extra()
    value = loss(z.requires_grad_(), y, **extra)
    value.backward()
    assert torch.equal(z.detach(), before[0])
    assert torch.equal(y, before[1])
    assert torch.equal(copy.deepcopy(loss)(z, y, **extra), loss(z, y, **extra))
    restored = case.loss(**case.parameters)
    restored.load_state_dict(loss.state_dict())
    assert torch.equal(restored(z.detach(), y, **extra), loss(z.detach(), y, **extra))


@every_case
def test_bad_input_gets_one_clear_sentence(case):
    z, y = case.batch()
    loss, name = case.make(), case.loss.__name__
    nan, huge = z.clone(), z.clone()
    nan[2, 1], huge[4, 0] = float("nan"), float("inf")
    for bad, target, *named in (
        (nan, y, "nan", "[2, 1]"),
        (huge, y, "inf", "[4, 0]"),
        (z[:0], y[:0], "[0, 5]"),
        (z[:, :1], y * 0, "[7, 1]"),
        (z, y[:-1], "labels", "[7]", "[6]"),
        (z, torch.full_like(y, 5), "labels", str(case.classes - 1), "5", "[0]"),
        (z, torch.full_like(y, -1), "labels", str(case.classes - 1), "-1"),
        (z.long(), y, "torch.int64"),
        (z, [0] * 7, "list"),
    ):
        with pytest.raises(ValueError, match=facts(name, *named)):
            loss(bad, target, **case.extra())


def test_soft_targets_where_they_have_no_meaning():
    z, y = batch()
    soft = F.one_hot(y, CLASSES).double()
    refused = {name for name in L.names() if not L.describe(name).soft}
    assert {"flsd", "lr"} <= refused < set(L.names())
    for name in refused:
        with pytest.raises(ValueError, match=facts("soft targets")):
            L.get(name)(z, soft)
    for name in set(L.names()) - refused:
        with pytest.raises(ValueError, match=facts("[7, 5]", "[7, 4]")):
            L.get(name)(z, soft[:, :4])
        assert torch.isfinite(L.get(name)(z, soft))


@pytest.mark.parametrize("name", [name for name in L.names() if L.describe(name).soft])
def test_soft_targets_and_alpha_receive_gradients_too(name):
    """As in torch: a teacher may be trained through its targets."""
    z, _ = batch()
    teacher = batch(seed=5, scale=1.0)[0].requires_grad_()
    leaf = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(L.get(name)(leaf, teacher.softmax(1)), teacher)
    assert slope.abs().max() > 0
    if name == "ce":
        (expected,) = torch.autograd.grad(F.cross_entropy(leaf, teacher.softmax(1)), teacher)
        torch.testing.assert_close(slope, expected)
    if name == "ls":
        alpha = torch.full((SAMPLES,), 0.1, dtype=torch.float64, requires_grad=True)
        for loss, extra in ((L.LabelSmoothing(), {"alpha": alpha}), (L.LabelSmoothing(alpha), {})):
            (slope,) = torch.autograd.grad(loss(leaf, z.argmax(1), **extra), alpha)
            assert slope.abs().max() > 0


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_value_and_gradient_match_the_numpy_reference(case, seed):
    z, y = case.batch(seed=seed)
    terms, extra = case.reference_terms(z, y), case.extra()
    for name, value in case.make().terms(z, y, **extra).items():
        assert value.item() == pytest.approx(terms[name].mean(), rel=1e-12, abs=1e-13), name
    total = terms["fidelity"] + terms["regulariser"]
    assert case.make()(z.clone().requires_grad_(), y, **extra).item() == pytest.approx(total.mean(), rel=1e-12)
    np.testing.assert_allclose(case.make(reduction="none")(z, y, **extra).numpy(), total, rtol=1e-11, atol=1e-13)
    slope = gradient(case.make(reduction="sum"), z, y, **extra).numpy()
    np.testing.assert_allclose(slope, case.reference_gradient(z, y), rtol=0, atol=2e-7)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0, 40.0])
def test_closed_form_equals_autograd_of_the_formula(case, scale):
    for seed in range(4):
        z, y = case.batch(seed=seed, scale=scale)
        loss, extra = case.make(), case.extra()
        torch.testing.assert_close(
            gradient(loss, z, y, **extra), formula_gradient(loss, z, y, **extra), rtol=1e-9, atol=1e-14
        )
        with_grad, without = loss(z.clone().requires_grad_(), y, **extra), loss(z, y, **extra)
        torch.testing.assert_close(with_grad.detach(), without, rtol=1e-12, atol=1e-14)


def test_every_method_is_in_the_catalogue_with_every_variant():
    for name in L.names():
        method = L.describe(name)
        mine = [c for c in CASES if c.loss is method.loss]
        assert mine, f"{name} is in no case of tests/reference/losses.py"
        if "variant" in method.defaults():
            others = {"lr"} if name == "ecp" else set()  # LR's published baseline has the entropy's sign flipped
            assert {c.parameters["variant"] for c in mine} == {"released", "paper"} | others, name


@pytest.mark.parametrize("case", [c for c in CASES if c.shift_invariant], ids=str)
def test_a_common_offset_costs_no_digits_in_float32(case):
    z, y = case.batch(scale=3.0)
    z = (256 * z).round() / 256  # exact in float32 with the offset added, too
    expected = case.make()(z, y, **case.extra())
    far = (z + 8192.0).float()
    assert torch.equal(far.double() - 8192.0, z)
    for leaf in (far, far.clone().requires_grad_()):
        value = case.make()(leaf, y, **case.extra()).double().detach()
        torch.testing.assert_close(value, expected, rtol=2e-6, atol=2e-6)


def test_hard_labels_as_one_hot_rows_give_the_same_loss():
    z, y = batch()
    soft = F.one_hot(y, z.shape[1]).double()
    for case in CASES:
        if case.loss.method.soft and not case.remembers:
            for loss in (case.make(), case.make(reduction="sum")):
                leaf = z.clone().requires_grad_()
                torch.testing.assert_close(loss(leaf, soft), loss(leaf, y), rtol=1e-10, atol=1e-12, msg=str(case))
                torch.testing.assert_close(
                    gradient(loss, z, soft), gradient(loss, z, y), rtol=1e-8, atol=1e-12, msg=str(case)
                )
