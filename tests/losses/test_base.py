"""What every loss shares: parameters, the registry, class weights, soft targets, several gradients at once."""

from pathlib import Path

import pytest
import torch

from calibrant import losses
from calibrant import losses as L
from calibrant.losses import CrossEntropy, Target
from calibrant.losses.base import COMMON
from tests.helpers.errors import facts
from tests.helpers.loss_cases import batch, gradient


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: L.LabelSmoothing(1.5), facts("alpha", "1.5")),
        (lambda: L.Focal(-1.0), facts("gamma", "-1.0")),
        (lambda: L.AdaFocal(0.0), facts("gamma", "0")),
        (lambda: L.ACLS(variant="papr"), facts("variant", "papr", "released")),
        (lambda: L.ACLS(gradient="eq12"), facts("eq12", "paper")),
        (lambda: L.CrossEntropy(reduction="avg"), facts("reduction", "avg", "mean")),
        (lambda: L.CrossEntropy(weight=torch.tensor([-1.0])), facts("weight")),
        (lambda: L.MMCE(weighted="no"), facts("weighted", "no")),
        (lambda: L.MbLS(strength=float("inf")), facts("strength", "inf")),
        (lambda: L.CrossEntropy(ignore_index=1.5), facts("ignore_index", "1.5")),
        (lambda: L.CrossEntropy(ignore_index=2**64), facts("ignore_index", "18446744073709551616")),
        (lambda: L.LabelSmoothing(torch.tensor([2.0, 0.1]))(*batch(2, 5)), facts("alpha", "0.1", "2")),
        (lambda: L.SoftTargetCrossEntropy(True, weight=torch.ones(5)), facts("weight")),
        (lambda: L.get("nope"), facts("nope")),
        (lambda: L.get("acls", margn=3), facts("acls", "margn")),
        (lambda: L.CrossEntropy(weight=torch.ones(3))(*batch()), facts("3", "5")),
    ],
)
def test_bad_parameters(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_several_upstream_gradients_at_once():
    z, y = batch()
    upstream = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    for name in ("ls", "acls", "mdca"):
        leaf = z.clone().requires_grad_()
        (stacked,) = torch.autograd.grad(L.get(name)(leaf, y), leaf, upstream, is_grads_batched=True)
        torch.testing.assert_close(stacked[2], 3 * gradient(L.get(name), z, y))


def test_registry_tells_paper_equation_and_directions():
    assert L.names()[:2] == ("ce", "ls")
    for name in L.names():
        method = L.describe(name)
        assert method.paper
        assert method.equation
        assert set(method.hyper) == set(method.defaults())
        assert isinstance(L.get(name), method.loss)
    assert repr(L.get("acls", margin=6.0, reduction="sum")) == "ACLS(margin=6.0, reduction='sum')"
    assert repr(L.CrossEntropy(weight=torch.ones(3))) == "CrossEntropy(weight=[3 values])"


def test_defaults_are_those_of_the_published_tables():
    expected = {
        "acls": {"margin": 10, "lambda1": 0.1, "lambda2": 0.01, "variant": "released", "gradient": "eq13"},
        "mbls": {"margin": 10, "strength": 0.1, "variant": "released"},
        "flsd": {"gamma": 3, "variant": "released"},
        "mmce": {"strength": 1, "kernel_width": 0.4, "weighted": True, "variant": "released"},
        "ecp": {"strength": 0.1, "variant": "paper"},
        "mdca": {"strength": 1, "base": "ce", "variant": "released"},
        "cpc": {"lambda1": 0.1, "lambda2": 1.0, "variant": "released"},
        "crl": {"strength": 1, "score": "msp", "variant": "released"},
        "lr": {"alpha": 0.1},
        "ls": {"alpha": 0.05, "spread": "all"},
        "focal": {"gamma": 3},
    }
    for name, parameters in expected.items():
        assert parameters.items() <= L.describe(name).defaults().items(), name


def test_classes_that_are_last_must_be_moved():
    """What the error proposes gives torch's cross-entropy."""
    logits, labels = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    with pytest.raises(ValueError, match=facts("transpose(1, 2)")):
        L.get("ce")(logits, labels)
    with pytest.raises(ValueError, match=facts("-1")):
        L.get("ce")(torch.randn(2, 3, 5, 7), torch.randint(7, (2, 3, 5)))
    expected = torch.nn.functional.cross_entropy(logits.reshape(-1, 7), labels.reshape(-1))
    torch.testing.assert_close(L.get("ce")(logits.transpose(1, 2), labels), expected)


ODD = ["x", "", None, [], {}, object(), 1 + 2j, b"x", float("nan"), float("inf"), 10**400, "9" * 5000, (1, 2)]


@pytest.mark.parametrize("name", L.names())
def test_every_parameter_is_taken_or_named_in_a_value_error(name):
    for parameter in (*L.describe(name).defaults(), *COMMON):
        for value in ODD:
            said = parameter
            try:
                L.get(name, **{parameter: value})
            except ValueError as error:
                said = str(error)
            assert parameter in said, value
            assert len(said) < 250
    with pytest.raises(ValueError, match=facts(name, "foo", "reduction")):
        L.get(name, foo=1)


def test_every_method_has_its_file_and_its_paper():
    root = Path(__file__).parents[2]
    bibliography = (root / "references.bib").read_text(encoding="utf-8")
    for name in L.names():
        method = L.describe(name)
        assert method.loss.__module__.startswith("calibrant.losses.")
        assert f"{{{method.paper}," in bibliography


def test_class_weights():
    assert torch.equal(CrossEntropy(weight=[1.0, 2.0]).weight, torch.tensor([1.0, 2.0]))
    for bad in ("x", 5, [[1.0]], [-1.0], [float("nan")], {"a": 1}, [1, "x"], [1 + 1j]):
        with pytest.raises(ValueError, match=facts("weight")):
            CrossEntropy(weight=bad)


@pytest.mark.parametrize("name", [name for name in losses.names() if losses.describe(name).soft])
def test_soft_targets_must_be_distributions(name):
    loss, z = losses.get(name), torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    q = torch.full_like(z, 0.25)
    assert torch.isfinite(loss(z, q))
    too_much, negative, hot = q.clone(), q.clone(), torch.zeros_like(q)
    too_much[2, 1, 3] = 0.5
    with pytest.raises(ValueError, match=facts("1", "1.25", "[2, 3]")):
        loss(z, too_much)
    negative[0, 0, 0], negative[0, 1, 0] = -0.25, 0.75
    with pytest.raises(ValueError, match=facts("1", "-0.25")):
        loss(z, negative)
    hot[:, :2] = 1
    with pytest.raises(ValueError, match=facts("2", "[0, 0]")):
        loss(z, hot)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_soft_targets_may_be_off_by_the_rounding_of_their_type(dtype):
    generator = torch.Generator().manual_seed(1)
    q = torch.rand(6, 1000, generator=generator, dtype=torch.float64).softmax(1).to(dtype)
    assert torch.isfinite(CrossEntropy()(torch.randn(6, 1000, generator=generator), q))
    with pytest.raises(ValueError, match=r"1\.0[45]"):
        CrossEntropy()(torch.randn(6, 1000, generator=generator), 1.05 * q)


def test_the_label_as_a_distribution_works_inside_vmap():
    """One-hot rows by hand; a warning that vmap has no rule for an operation is an error here."""
    z, labels = torch.zeros(3, 4), torch.tensor([2, 0, 3])

    def row(z, label):
        return Target(label.unsqueeze(0)).distribution(z.unsqueeze(0))[0]

    expected = [[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    assert torch.func.vmap(row)(z, labels).tolist() == expected


def test_terms_of_one_sample_have_the_shape_of_its_loss():
    loss = L.MbLS(reduction="none")
    single = loss.terms(torch.tensor([2.0, 0.0, 0.0]), torch.tensor(1))
    whole = loss.terms(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([1]))
    assert {name: tuple(value.shape) for name, value in single.items()} == {"fidelity": (), "regulariser": ()}
    assert all(tuple(value.shape) == (1,) for value in whole.values())
