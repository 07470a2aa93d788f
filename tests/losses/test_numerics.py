"""The building blocks of the closed forms, against plain torch at ties and at large logits."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant.losses.numerics import first_maximum, is_at, label_log_odds, set_at, softmax, subtract_at
from calibrant.losses.target import Target

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
