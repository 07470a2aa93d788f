"""Make torchvision importable when its compiled operators do not load.

A CPU-only PyTorch beside a CUDA-built torchvision is a common mix. `import torchvision` then fails with "operator
torchvision::nms does not exist", and so does everything that imports it, torchmetrics and Lightning included. Only when
an import has failed for that reason are the operators supplied. Call `ensure` before the first of these imports.

Supplied: `nms` (hence `batched_nms`) and `roi_align`, which is what torchvision's detection models use. The other
compiled operators (`roi_pool`, `ps_roi_align`, `deform_conv2d`, quantised and rotated boxes) still raise when called.
"""

import functools
import importlib
import importlib.util
import re
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

_MISSING_OPERATOR = re.compile("operator torchvision::.* does not exist")

# torchvision registers fake kernels for these two at import even without its extension, so both schemas must exist.
_SCHEMAS = {name: f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")}

# Bounds on memory: rows of the overlap matrix of nms, elements of an interpolation buffer of roi_align.
_NMS_BLOCK = 128
_ROI_ALIGN_ELEMENTS = 2**24

# A Library takes its operators along when it is collected, so it has to live as long as the process.
_libraries: list[torch.library.Library] = []


@functools.cache
def ensure() -> bool:
    """Import torchvision, and supply its operators in PyTorch if that fails because they are missing.

    An installed torchvision that imports by itself, of whatever version, is left alone. Calling again changes nothing.

    Returns:
        True if the fallback is in use; False if torchvision imports by itself or is not installed.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:  # no origin: a stray directory that happens to have the name
        return False
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if not _MISSING_OPERATOR.search(str(error)):
            raise
    else:
        return False
    # A failed import drops the package but leaves its submodules, which a second import would not attach again.
    for name in [name for name in sys.modules if name.startswith("torchvision.")]:
        del sys.modules[name]
    _register_operators()
    _unlock_torchvision()
    return True


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Non-maximum suppression with the results of torchvision's CPU kernel.

    Boxes are visited by descending score, equal scores in input order; a visited box removes every later one whose
    IoU with it is greater than the threshold. Two boxes of zero area have IoU 0/0, which removes nothing.

    Args:
        boxes: [N, 4], corners x1, y1, x2, y2. Precision below float32 is computed in float32.
        scores: [N].
        iou_threshold: Overlap that is still allowed.

    Returns:
        Indices of the kept boxes, int64, by descending score.
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4 or scores.shape != boxes.shape[:1]:
        # RuntimeError because that is what the compiled operator raises.
        raise RuntimeError(f"nms takes boxes [N, 4] and scores [N], got {list(boxes.shape)} and {list(scores.shape)}")
    boxes = boxes.to(torch.promote_types(boxes.dtype, torch.float32))
    remaining = scores.sort(stable=True, descending=True).indices
    blocks = [remaining[:0]]
    while remaining.numel():
        block, remaining = remaining[:_NMS_BLOCK], remaining[_NMS_BLOCK:]
        # Only inside a block does one decision wait for another; on the CPU because each row is a sync elsewhere.
        # In NumPy, whose operations on a hundred values take a fifth of the time.
        allowed = ~_overlap(boxes[block], boxes[block], iou_threshold).triu(1).cpu().numpy()
        alive = np.ones(len(block), dtype=bool)
        for i in range(len(block)):
            if alive[i]:
                alive &= allowed[i]
        block = block[torch.from_numpy(alive).to(block.device)]
        blocks.append(block)
        remaining = remaining[~_overlap(boxes[block], boxes[remaining], iou_threshold).any(0)]
    return torch.cat(blocks)


def _overlap(a: Tensor, b: Tensor, iou_threshold: float) -> Tensor:
    """Whether IoU exceeds the threshold, [len(a), len(b)]."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = a[:, None].unbind(-1), b[None].unbind(-1)
    width = (torch.minimum(ax2, bx2) - torch.maximum(ax1, bx1)).clamp(min=0)
    height = (torch.minimum(ay2, by2) - torch.maximum(ay1, by1)).clamp(min=0)
    shared = width * height
    iou = shared / ((ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - shared)
    # The compiled kernel compares its float32 IoU with a double threshold: float32(0.1) > 0.1 is true there.
    return iou.double() > iou_threshold


def roi_align(
    features: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Tensor:
    """Features pooled from regions, with the results of torchvision's CPU kernel up to rounding.

    A bin is the mean of bilinear samples on a grid, hence linear in the features, and separable: two products with
    matrices that interpolate along a side, ten times faster than to gather four neighbours of every sample.

    Args:
        features: [N, C, H, W].
        rois: [R, 5]: number of the image, then the corners x1, y1, x2, y2 in pixels of the image.
        scale: Of the features, in their pixels for one of the image.
        height: Bins of a region.
        width: Likewise.
        ratio: Samples along a side of a bin; as many as pixels, rounded up, if not above 0.
        aligned: Whether pixels are points at halves; if not, a region has at least one pixel along each side.

    Returns:
        [R, C, height, width].
    """
    dtype = torch.promote_types(features.dtype, torch.float32)
    corners = rois[:, 1:].to(dtype) * scale - (0.5 if aligned else 0.0)
    sizes = corners[:, 2:] - corners[:, :2]
    sizes = sizes if aligned else sizes.clamp(min=1.0)
    _, channels, rows, columns = features.shape
    across = _interpolation(corners[:, 0], sizes[:, 0], width, ratio, columns)
    down = _interpolation(corners[:, 1], sizes[:, 1], height, ratio, rows)
    images, values = rois[:, 0].long(), features.to(dtype)
    pooled = [values.new_empty((0, channels, height, width))]
    order = [images[:0]]
    size = max(1, _ROI_ALIGN_ELEMENTS // max(1, channels * height * columns))
    for image in images.unique().tolist():
        plane = values[image].permute(1, 0, 2).reshape(rows, channels * columns)
        for part in (images == image).nonzero().squeeze(1).split(size):
            lines = down[part].reshape(-1, rows) @ plane
            bins = lines.view(len(part), height * channels, columns) @ across[part].transpose(1, 2)
            pooled.append(bins.view(len(part), height, channels, width).transpose(1, 2))
            order.append(part)
    back = torch.cat(order).argsort()
    return torch.cat(pooled)[back].to(features.dtype)


def _interpolation(start: Tensor, size: Tensor, bins: int, ratio: int, pixels: int) -> Tensor:
    """What each pixel along a side counts for in the mean of each bin, [R, bins, pixels].

    Samples more than a pixel beyond the edge count 0; others take the edge's value.
    """
    # NaN, from weights that are not finite, is passed on in the values; it cannot be a number of samples.
    counts = (size / bins).ceil().nan_to_num(1.0).clamp(1, pixels) if ratio <= 0 else torch.full_like(size, ratio)
    samples = torch.arange(int(counts.max()) if len(counts) else 1, device=size.device, dtype=size.dtype)
    offsets = (samples + 0.5) / counts[:, None]
    bin_starts = torch.arange(bins, device=size.device, dtype=size.dtype)[None, :, None]
    points = start[:, None, None] + (bin_starts + offsets[:, None]) * (size / bins)[:, None, None]
    is_counted = (points >= -1) & (points <= pixels) & (samples < counts[:, None])[:, None]
    weights = is_counted / counts[:, None, None]
    points = points.nan_to_num(0.0).clamp(0, pixels - 1)
    low = points.floor()
    share = (points - low) * weights
    matrix = points.new_zeros((*points.shape[:2], pixels))
    matrix.scatter_add_(2, low.long(), weights - share)
    return matrix.scatter_add_(2, (low.long() + 1).clamp(max=pixels - 1), share)


def _register_operators() -> None:
    _libraries.append(torch.library.Library("torchvision", "FRAGMENT"))
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):  # else it is somebody else's fallback, and stays
            _libraries[-1].define(schema)
            if name == "nms":
                _libraries[-1].impl(name, nms, "CompositeExplicitAutograd")


def _unlock_torchvision() -> None:
    """Import torchvision and lift the two checks that ask for the extension rather than for the operator."""
    boxes: Any = importlib.import_module("torchvision.ops.boxes")
    boxes._assert_has_ops = _accept
    module: Any = importlib.import_module("torchvision.ops.roi_align")
    # torchvision's own PyTorch version goes through torch.compile: half a minute, and a C++ compiler at run time.
    module._roi_align = roi_align
    module.is_compile_supported = lambda device_type: True


def _accept() -> None:
    """Stand in for `_assert_has_ops`; a function of its own because TorchScript compiles it."""
