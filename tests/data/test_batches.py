"""Orders of samples, and images as floats."""

import numpy as np
import pytest
import torch

from calibrant.data import Batches, normalised
from tests.helpers.toy_images import noise


def test_orders_of_epochs():
    batches = Batches(10, 4, seed=2)
    first = list(batches)
    assert [len(b) for b in first] == [4, 4, 2]
    assert sorted(i for b in first for _, i in b) == list(range(10))
    batches.epoch = 1
    assert [i for b in batches for _, i in b] != [i for b in first for _, i in b]
    batches.epoch, batches.start = 0, 1
    assert list(batches) == first[1:]
    assert len(batches) == 2
    assert len(Batches(10, 4, drop_last=True)) == 2


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_normalisation(layout):
    images = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8).contiguous(memory_format=layout)
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.25])
    expected = (images.double() / 255 - mean[:, None, None]) / std[:, None, None]
    result = normalised(images, mean, std)
    assert torch.allclose(result.double(), expected, atol=1e-6)
    assert result.shape == images.shape
    floats = images.float().contiguous(memory_format=layout)
    kept = floats.clone()
    normalised(floats, mean, std)
    assert torch.equal(floats, kept)  # what was given is not overwritten


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_normalisation_of_any_layout(contiguous, channels):
    images = torch.from_numpy(noise(2, 5, 7, 4))[..., :channels].permute(0, 3, 1, 2)
    images = images.contiguous() if contiguous else images
    assert images.is_contiguous() == contiguous
    mean, std = [0.4, 0.5, 0.6][:channels], [0.2, 0.3, 0.25][:channels]
    found = normalised(images, mean, std)
    assert found.shape == images.shape
    for c in range(channels):
        expected = (images[:, c].numpy() / 255.0 - mean[c]) / std[c]
        assert np.allclose(found[:, c].numpy(), expected, atol=1e-6)
    for wrong in ([0.5] * 2, [0.5] * (4 - channels), []):
        for arguments in ((wrong, std), (mean, wrong)):
            got = " and ".join(str(len(values)) for values in arguments)
            with pytest.raises(ValueError, match=rf"each of the {channels} channels, got {got}$"):
                normalised(images, *arguments)
