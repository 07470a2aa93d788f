"""Mini-batches: their contents, which samples make up each, and the normalisation of their images.

Images are uint8 until `normalised` turns a whole batch into floats, on its device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant.data.boxes import Boxes
from calibrant.data.rendering import sample_generator
from calibrant.data.transforms import View


@dataclass(frozen=True)
class Batch:
    """One mini-batch.

    Attributes:
        inputs: uint8 [N, C, H, W] for images, else the rows of the data set.
        labels: [N] int64.
        ids: Ids of the samples.
        indices: [N]: their positions in the data set.
        objectness: [N] float64: how much of each view its objects fill; NaN for a sample with a class but without any
            box (unknown); None if the data set has no boxes.
        context: [N] bool: samples without objects, whose target is uniform; None if there are none.
        masks: [N, H, W] int64, for segmentation.
        soft: [N, K], where the data set has them.
        boxes: Boxes of the images; object-aware mixing needs them and ``views``.
        views: How each image was rendered.
        skipped: id and reason of samples that could not be read (``on_error="skip"``).
    """

    inputs: Tensor
    labels: Tensor
    ids: tuple[str, ...]
    indices: Tensor
    objectness: Tensor | None = None
    context: Tensor | None = None
    masks: Tensor | None = None
    soft: Tensor | None = None
    boxes: Boxes | None = None
    views: Sequence[View] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """A copy with its tensors on a device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """A copy with its tensors in pinned memory; called by a DataLoader."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        tensors: dict[str, Any] = {name: change(v) for name, v in vars(self).items() if isinstance(v, Tensor)}
        return dataclasses.replace(self, **tensors)


class Batches:
    """The samples of each batch of an epoch, as (epoch, position); iteration can start at any batch.

    Args:
        number: Number of samples.
        size: Samples of a batch.
        shuffle: Shuffle the samples, in an order that depends on (seed, epoch).
        seed: Seed of the order.
        drop_last: Leave out a last batch that is not full.
        rank, world: Take every ``world``-th sample of each batch, from ``rank`` on: one process of several. A last
            batch with fewer samples than processes is left out if shuffled, as processes train in step; otherwise
            processes without a share skip it.

    Example:
        >>> batches = Batches(5, 2, shuffle=False)
        >>> list(batches)
        [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(0, 4)]]
        >>> batches.epoch, batches.start = 3, 2
        >>> list(batches)
        [[(3, 4)]]
    """

    def __init__(
        self,
        number: int,
        size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world: int = 1,
    ):
        if number < 0 or size < 1:
            raise ValueError(f"Batches takes a number of samples and a size of at least 1, got {number} and {size}")
        self.number, self.size, self.shuffle, self.seed, self.drop_last = number, size, shuffle, seed, drop_last
        self.rank, self.world = rank, world
        self.epoch = self.start = 0

    @property
    def per_epoch(self) -> int:
        """Number of batches in a whole epoch, whatever ``start`` is."""
        full_batches, remainder = divmod(self.number, self.size)
        return full_batches + (not self.drop_last and remainder >= (self.world if self.shuffle else 1))

    def __len__(self) -> int:
        return max(0, self.per_epoch - self.start)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        order = np.arange(self.number)
        if self.shuffle:
            order = sample_generator(self.seed, self.epoch, -1).permutation(self.number)
        for batch in range(self.start, self.start + len(self)):
            rows = order[batch * self.size : (batch + 1) * self.size]
            if len(share := rows[self.rank :: self.world]):
                yield [(self.epoch, int(i)) for i in share]


def normalised(
    images: Tensor, mean: Sequence[float], std: Sequence[float], dtype: torch.dtype = torch.float32
) -> Tensor:
    """uint8 images [N, C, H, W] as floats: (images / 255 - mean) / std, one mean and one std per channel.

    Example:
        >>> normalised(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8), [0.5] * 3, [0.25] * 3).flatten().tolist()
        [2.0, 2.0, 2.0]
    """
    number, channels, height, width = images.shape
    centre, deviation = (torch.as_tensor(values, dtype=torch.float64).reshape(-1) for values in (mean, std))
    if not len(centre) == len(deviation) == channels:
        actual = f"{len(centre)} and {len(deviation)}"
        raise ValueError(f"normalised takes a mean and a std for each of the {channels} channels, got {actual}")
    scale = (1.0 / (255.0 * deviation)).to(images.device, dtype)
    shift = (-centre / deviation).to(images.device, dtype)
    if images.is_contiguous():
        return torch.addcmul(shift.view(-1, 1, 1), images.to(dtype), scale.view(-1, 1, 1))
    # Images are read with channels last: rows of width x channels keep the inner loop long.
    rows = images.permute(0, 2, 3, 1).reshape(number * height, width * channels).to(dtype)
    out = rows if not images.is_floating_point() else None  # else it may be the caller's memory
    rows = torch.addcmul(shift.repeat(width), rows, scale.repeat(width), out=out)
    return rows.view(number, height, width, channels).permute(0, 3, 1, 2)
