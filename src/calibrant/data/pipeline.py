"""From a data set to training batches: decode, augment, and compute how much of each crop its objects fill.

The random numbers of a sample depend on (seed, epoch, index) alone, not on workers or on what was read before, so that
a run can resume in the middle of an epoch. Objectness is computed once per batch from the views' rectangles.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
import torch.utils.data
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from calibrant.base.checks import check_choice, check_number
from calibrant.data import rendering
from calibrant.data.batches import Batch, Batches
from calibrant.data.boxes import Reading
from calibrant.data.dataset import Dataset, OnError
from calibrant.data.files import UnreadableError
from calibrant.data.rendering import OneByOneError, Randomness, decode_smaller, objectness_of, render, sample_generator
from calibrant.data.sources import ImageArray, Rows
from calibrant.data.transforms import Edge, Resampling, Step, View, draw_view
from calibrant.data.variants import Colour, can_be_covered, open_covered, pixel_mean

#: Changes the colours of one uint8 image [C, H, W].
Colouring = Callable[[Tensor, np.random.Generator], Tensor]

_FILTERS: dict[Resampling, Image.Resampling] = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


class Pipeline(torch.utils.data.Dataset[Batch]):
    """Reads a data set batch by batch, as a model takes it.

    Args:
        dataset: The data set.
        steps: The chain of `calibrant.data.transforms` for images; it must end in one size.
        colouring: Changes the colours of each image after rendering.
        seed: Seed of all randomness.
        context_rate: The probability that an image is shown with all its objects covered (ALS uses 0.15); needs boxes.
        fill: The colour of covered objects; the data set's mean pixel if None.
        padding: The colour of padding, or ``"edge"`` to repeat the nearest visible pixel (torchvision's
            ``padding_mode="edge"``, Keras' ``fill_mode="nearest"``). Masks are padded with ignore_index.
        resampling: How images are scaled, ``"bilinear"`` or ``"bicubic"``; masks take the nearest pixel.
        channels: 3, or 1 for grey (PIL's ``"L"``), after the colouring.
        reading: As for `objectness`.
        on_error: ``"skip"`` leaves unreadable samples out of their batch and lists them in ``batch.skipped``.
        filled_up: Images of a batch may differ in size: each is padded with zeros at the right and below.
            ``batch.views`` has their sizes.

    Example:
        >>> from calibrant.data import Boxes, ImageArray, RandomFlip, RandomResizedCrop
        >>> pixels = np.zeros((4, 48, 48, 3), dtype=np.uint8)
        >>> boxes = Boxes.of([[[0, 0, 48, 24]]] * 4)
        >>> data = Dataset("tiny", "train", ("cat", "dog"), tuple("abcd"), [0, 1, 0, 1], ImageArray(pixels), boxes)
        >>> pipeline = Pipeline(data, [RandomResizedCrop(32, scale=(1.0, 1.0), ratio=(1.0, 1.0)), RandomFlip()])
        >>> batch = pipeline.batch([0, 2, 3])
        >>> batch.inputs.shape, batch.labels.tolist(), batch.objectness.tolist()
        (torch.Size([3, 3, 32, 32]), [0, 0, 1], [0.5, 0.5, 0.5])
    """

    def __init__(
        self,
        dataset: Dataset,
        steps: Sequence[Step] = (),
        *,
        colouring: Colouring | None = None,
        seed: int = 0,
        context_rate: float = 0.0,
        fill: Colour | None = None,
        padding: int | Colour | Edge = 0,
        resampling: Resampling = "bilinear",
        channels: Literal[1, 3] = 3,
        reading: Reading = "union",
        on_error: OnError = "raise",
        filled_up: bool = False,
    ):
        check_number("context_rate", context_rate, 0, 1)
        check_choice("resampling", resampling, _FILTERS)
        check_choice("channels", channels, (1, 3))
        check_choice("on_error", on_error, ("raise", "skip"))
        if context_rate > 0 and dataset.boxes is None:
            raise ValueError(f"{dataset.title}: context-only samples need boxes, and it has none")
        if isinstance(padding, str) and padding != "edge":
            raise ValueError(f"padding must be a colour or 'edge', got {padding!r}")
        self.dataset, self.steps, self.colouring, self.seed = dataset, tuple(steps), colouring, seed
        self.context_rate, self.padding, self.reading, self.on_error = context_rate, padding, reading, on_error
        self.resampling, self.channels, self.filled_up = resampling, channels, filled_up
        self.fill = pixel_mean(dataset) if fill is None and context_rate > 0 else fill or (0, 0, 0)
        self._coverable = can_be_covered(dataset.boxes) if context_rate > 0 and dataset.boxes is not None else None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int | tuple[int, int]) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int | tuple[int, int]]) -> Batch:
        """A batch by positions, or by (epoch, position) as in `Batches`; called by a DataLoader."""
        return self._batch([index if isinstance(index, tuple) else (0, int(index)) for index in indices])

    def batch(self, indices: Sequence[int], epoch: int = 0) -> Batch:
        """A batch by positions."""
        return self._batch([(epoch, int(index)) for index in indices])

    def loader(self, batches: Batches, workers: int = 0, **options: Any) -> torch.utils.data.DataLoader[Any]:
        """A DataLoader that gives a `Batch` for each of ``batches``.

        Worker processes read two batches ahead each, with one torch thread each: PyTorch's default, which the option
        ``prefetch_factor`` changes.
        """
        return _Loader(
            self,
            batch_sampler=batches,
            collate_fn=_identity,
            num_workers=workers,
            worker_init_fn=_ignore_interrupts,
            **({"persistent_workers": workers > 0} | options),
        )

    def _batch(self, pairs: list[tuple[int, int]]) -> Batch:
        if self.dataset.kind != "image":
            return self._rows([index for _, index in pairs])
        if (batch := self._batch_at_once(pairs)) is not None:
            return batch
        rows, images, skipped = [], [], []
        for epoch, index in pairs:
            try:
                images.append(self._render(epoch, index))
                rows.append(index)
            except (UnreadableError, OSError) as error:
                if self.on_error == "raise":
                    raise
                skipped.append((self.dataset.ids[index], str(error)))
        views = tuple(image.view for image in images)
        covered = np.array([image.covered for image in images], dtype=bool)
        masks = None if self.dataset.masks is None else _stack([image.mask for image in images], (0, 0, 0)).long()
        pixels = [image.pixels for image in images]
        inputs = _stack(_fill_up(pixels) if self.filled_up else pixels, (0, 0, 0, self.channels)).permute(0, 3, 1, 2)
        positions = np.array(rows, dtype=np.int64)
        return self._make_batch(inputs, positions, covered, views, masks=masks, skipped=tuple(skipped))

    def _batch_at_once(self, pairs: list[tuple[int, int]]) -> Batch | None:
        """The same batch without a call per sample; None if that is not possible."""
        source = self.dataset.inputs
        if not pairs or type(source) is not ImageArray:  # a subclass may open images differently
            return None
        if self.colouring is not None or self.context_rate or self.dataset.masks is not None:
            return None
        is_grey = source.pixels.ndim == 3
        if is_grey and isinstance(self.padding, tuple):  # coloured padding of grey
            return None
        epochs, rows = np.array(pairs, dtype=np.int64).T
        random = Randomness(self.seed, epochs.astype(np.uint64), rows.astype(np.uint64))
        try:
            views = rendering.draw_views(self.steps, len(rows), source.header(0)[0], random)
        except OneByOneError:
            return None
        pixels = rendering.render_views(source.pixels, rows, views, self.padding)
        if self.channels == 1:
            pixels = (pixels if is_grey else rendering.grey(pixels))[..., None]
        elif is_grey:
            pixels = np.repeat(pixels[..., None], 3, axis=3)
        inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        return self._make_batch(inputs, rows, np.zeros(len(rows), dtype=bool), views)

    def _render(self, epoch: int, index: int) -> _RenderedImage:
        """Draw a view of one image and render it."""
        data, images = self.dataset, cast(Any, self.dataset.inputs)
        random = sample_generator(self.seed, epoch, index)
        covered = self.context_rate > 0 and random.random() < self.context_rate
        covered = covered and self._coverable is not None and bool(self._coverable[index])
        views: list[View] = []

        def draft(image: Image.Image) -> None:
            views.append(draw_view(self.steps, image.size, random))
            decode_smaller(image, views[0])

        if covered and data.boxes is not None:
            image = open_covered(images, index, data.boxes[index], self.fill, draft=draft)
        else:
            image = images.open(index, draft)
        view = views[0] if views else draw_view(self.steps, image.size, random)  # the source has no headers to look at
        pixels = render(image, view, self.padding, _FILTERS[self.resampling])
        if self.colouring is not None:
            coloured = self.colouring(torch.from_numpy(pixels.copy()).permute(2, 0, 1), random)
            pixels = coloured.permute(1, 2, 0).numpy()
        if self.channels == 1:
            pixels = np.asarray(Image.fromarray(pixels).convert("L"))[:, :, None]
        mask = None
        if data.masks is not None:
            outside = 255 if data.ignore_index is None else data.ignore_index
            mask = render(data.masks[index], view, outside, Image.Resampling.NEAREST)
        return _RenderedImage(pixels, view, covered, mask)

    def _rows(self, indices: list[int]) -> Batch:
        if self.dataset.kind == "text":
            raise ValueError(f"{self.dataset.title}: texts must be encoded before they are batched")
        rows, source = np.array(indices, dtype=np.int64), self.dataset.inputs
        if isinstance(source, Rows) and len(rows):
            values = source.values[rows]
        else:
            values = np.stack([np.asarray(source[i]) for i in rows]) if len(rows) else np.zeros((0, 0))
        return self._make_batch(torch.from_numpy(values), rows)

    def _make_batch(
        self,
        inputs: Tensor,
        rows: NDArray[np.int64],
        covered: NDArray[np.bool_] | None = None,
        views: Sequence[View] = (),
        **columns: Any,
    ) -> Batch:
        """A batch of samples of the data set; ``covered`` marks images whose objects are covered."""
        data = self.dataset
        if data.soft is not None:
            columns["soft"] = torch.from_numpy(data.soft[rows])
        if covered is not None and (self.context_rate or data.context is not None):
            columns["context"] = torch.from_numpy(covered if data.context is None else covered | data.context[rows])
        if covered is not None and data.boxes is not None:
            boxes = data.boxes.take(rows)
            unknown = (boxes.counts == 0) & (data.labels[rows] >= 0)
            if data.context is not None:
                unknown &= ~data.context[rows]
            if covered.any():
                boxes = boxes.only(~covered[boxes.owners])
            shares = objectness_of(boxes, views, reading=self.reading, names=[data.ids[i] for i in rows])
            shares[unknown] = np.nan
            columns |= {"boxes": boxes, "objectness": torch.from_numpy(shares)}
        labels, ids = torch.from_numpy(data.labels[rows]), tuple(data.ids[i] for i in rows)
        return Batch(inputs, labels, ids, torch.from_numpy(rows), views=views, **columns)


class _Loader(torch.utils.data.DataLoader[Any]):
    """A DataLoader whose workers start with SIGINT blocked, so that none is killed before it ignores SIGINT."""

    def __iter__(self) -> Any:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().__iter__()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _RenderedImage(NamedTuple):
    """One image as its view shows it."""

    pixels: NDArray[np.uint8]
    view: View
    covered: bool
    mask: NDArray[np.uint8] | None


def _fill_up(images: list[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Pad images [H, W, C] to one size, with zeros to the right and below."""
    height, width = (max((image.shape[side] for image in images), default=0) for side in (0, 1))
    return [np.pad(i, ((0, height - i.shape[0]), (0, width - i.shape[1]), (0, 0))) for i in images]


def _stack(arrays: list[Any], empty: tuple[int, ...]) -> Tensor:
    """Stack arrays of the same shape as one tensor, which has the shape ``empty`` if there are none."""
    if not arrays:
        return torch.zeros(empty, dtype=torch.uint8)
    if len({array.shape for array in arrays}) > 1:
        shapes = sorted({array.shape[1::-1] for array in arrays})[:2]
        raise ValueError(
            f"images of different sizes in one batch (such as {shapes}): end the steps with a crop, centre_crop for "
            "example; a resize by one number scales the shorter side"
        )
    return torch.from_numpy(np.stack(arrays))


def _ignore_interrupts(worker: int) -> None:
    """In a worker: Ctrl-C reaches every process of a terminal, and the main one handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _identity(batch: Any) -> Any:
    return batch
