"""Blocks of residual networks against their definition."""

import pytest
import torch
from torch import nn

from calibrant import _torchvision
from calibrant.models import build
from tests.helpers.networks import count, on_meta

_torchvision.ensure()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_the_shortcut_of_option_a_drops_pixels_and_adds_zeros():
    block = build("resnet20").trunk.stages[1][0].eval()
    nn.init.zeros_(block.bn2.weight)  # leaves the shortcut alone
    x = torch.rand(2, 16, 6, 6)
    expected = torch.zeros(2, 32, 3, 3)
    expected[:, 8:24] = x[:, :, ::2, ::2]
    torch.testing.assert_close(block(x), expected)
    assert count(on_meta("resnet20", shortcut="project")) == 269_722 + 16 * 32 + 64 + 32 * 64 + 128
