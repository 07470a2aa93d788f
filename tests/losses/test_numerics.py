"""The building blocks of the closed forms, against plain torch at ties and at large logits; checks of arguments."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant import losses
from calibrant.losses import CrossEntropy, Target
from calibrant.losses.numerics import first_maximum, is_at, label_log_odds, set_at, softmax, subtract_at
from tests.helpers.errors import facts

whole_logits = st.lists(st.lists(st.integers(-3, 3), min_size=5, max_size=5), min_size=1, max_size=6)


@given(whole_logits)
def test_the_first_of_tied_maxima(rows):
    z = torch.tensor(rows, dtype=torch.float64)
    maximum = first_maximum(z)
    first = torch.tensor([[row.index(max(row))] for row in rows])
    assert torch.equal(maximum.position, first)
    assert torch.equal(maximum.top, z.amax(1, keepdim=True))
    assert torch.equal(maximum.gap, maximum.top - z)


def test_a_common_offset_costs_softmax_no_digits():
    z = torch.tensor([[1.0, 2.0, 3.5]], dtype=torch.float64)
    near, far = softmax(z), softmax(z + 2.0**40)
    torch.testing.assert_close(far.probs, near.probs, rtol=0, atol=0)
    torch.testing.assert_close(far.log_sum, near.log_sum, rtol=0, atol=0)
    torch.testing.assert_close(near.log_sum + near.top, z.logsumexp(1, keepdim=True))


def test_writing_at_an_index():
    x, index = torch.arange(12.0).reshape(3, 4), torch.tensor([[1], [0], [3]])
    assert is_at(x, index).nonzero()[:, 1].tolist() == [1, 0, 3]
    assert subtract_at(x.clone(), index, 1.0).sum() == x.sum() - 3
    assert set_at(x.clone(), index, -1.0).gather(1, index).flatten().tolist() == [-1.0] * 3


def test_log_odds_keep_their_digits_at_both_ends():
    z = torch.tensor([[40.0, 0.0, 0.0], [-40.0, 0.0, 0.0]], dtype=torch.float64)
    log_p, log_rest = label_log_odds(z, Target(torch.tensor([0, 0])))
    torch.testing.assert_close(
        log_rest[0].exp() / log_p[0].exp(), torch.tensor(2.0, dtype=torch.float64) * (-z[0, 0]).exp()
    )
    torch.testing.assert_close(log_p[1], z[1, 0] - torch.tensor(2.0, dtype=torch.float64).log())


def test_class_weights():
    assert torch.equal(CrossEntropy(weight=[1.0, 2.0]).weight, torch.tensor([1.0, 2.0]))
    for bad in ("x", 5, [[1.0]], [-1.0], [float("nan")], {"a": 1}, [1, "x"], [1 + 1j]):
        with pytest.raises(ValueError, match=facts("weight")):
            CrossEntropy(weight=bad)


def test_labels_have_64_bits():
    with pytest.raises(ValueError, match=facts("ignore_index", "18446744073709551616")):
        CrossEntropy(ignore_index=2**64)


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
