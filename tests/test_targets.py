"""Adaptive targets against ALS's formula."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant import _torchvision
from calibrant.targets import adaptive_targets, hard_targets, uniform_targets
from tests.helpers.errors import facts
from tests.reference import objects as reference

_torchvision.ensure()


@given(st.integers(2, 7), st.floats(0, 1), st.floats(0, 1), st.data())
def test_adaptive_targets_are_those_of_the_paper(classes, share, beta, data):
    label = data.draw(st.integers(0, classes - 1))
    target = adaptive_targets([label], [share], classes, beta, dtype=torch.float64)[0]
    assert target.tolist() == pytest.approx(reference.adaptive_target(label, share, classes, beta), abs=1e-15)
    assert target.sum().item() == pytest.approx(1.0, abs=1e-14)


def test_limits_of_adaptive_targets():
    labels = torch.tensor([2, 0, 1])
    assert torch.equal(adaptive_targets(labels, 1.0, 4), torch.eye(4)[labels])
    assert torch.equal(adaptive_targets(labels, [0.1, 0.2, 0.3], 4, beta=0.0), torch.eye(4)[labels])
    assert torch.equal(hard_targets(labels, 4), torch.eye(4)[labels])
    assert adaptive_targets([1], [0.0], 4)[0].tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    # Beta 0.75 leaves the class at least a quarter, as the paper says.
    assert adaptive_targets([1], [0.0], 4, beta=0.75)[0, 1] == 0.25
    context = adaptive_targets(labels, [0.5, 0.0, 0.9], 4, beta=0.5, context=[False, True, False])
    assert context[1].tolist() == [0.25] * 4
    assert context[0, 2] == pytest.approx(0.75)
    assert adaptive_targets([-1, 0], [0.0, 1.0], 4)[0].tolist() == [0.25] * 4  # none of the classes
    assert torch.equal(uniform_targets(3, 5), torch.full((3, 5), 0.2))
    assert adaptive_targets(labels, torch.rand(3, dtype=torch.float64), 4).dtype == torch.float64
    assert adaptive_targets(torch.zeros(0, dtype=torch.long), torch.zeros(0), 4).shape == (0, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 4], [0.5, 0.5], 4), facts("labels", "0")),
        (([0.5], [0.5], 4), facts("labels")),
        (([0], [1.5], 4), facts("objectness", "NaN")),
        (([0], [float("nan")], 4), facts("objectness", "NaN")),
        (([0, 1], [0.5], 4), facts("objectness", "[1]")),
        (([0], [0.5], 1), facts("num_classes", "1")),
        (([0], [0.5], 4, 1.5), facts("beta", "1.5")),
        (([0, 0], [float("nan"), 0.5], 4), facts("objectness", "NaN")),
    ],
)
def test_targets_refuse_nonsense(arguments, message):
    with pytest.raises(ValueError, match=message):
        adaptive_targets(*arguments)
