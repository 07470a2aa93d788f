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
import inspect
import re
import sys
from typing import Any

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
        overlaps = _overlap(boxes[block], boxes[block], iou_threshold).triu(1).cpu()
        alive = torch.ones(len(block), dtype=torch.bool)
        for i, row in enumerate(overlaps):
            if alive[i]:
                alive &= ~row
        block = block[alive.to(block.device)]
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
    eager = inspect.unwrap(module._roi_align)

    @functools.wraps(eager)
    def chunked(x: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Tensor:
        samples = ratio**2 if ratio > 0 else x.shape[2] * x.shape[3]
        size = max(1, _ROI_ALIGN_ELEMENTS // max(1, x.shape[1] * height * width * samples))
        return torch.cat([eager(x, part, scale, height, width, ratio, aligned) for part in rois.split(size)])

    module._roi_align = chunked
    module.is_compile_supported = lambda device_type: True


def _accept() -> None:
    """Stand in for `_assert_has_ops`; a function of its own because TorchScript compiles it."""
