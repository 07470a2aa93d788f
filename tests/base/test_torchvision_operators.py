"""The stand-in for torchvision's compiled operators.

Oracle for nms: `slow_nms`, a loop in NumPy over the definition in torchvision's documentation. What `ensure` does to an
interpreter is observed in fresh ones.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.base import torchvision_operators
from tests.helpers.errors import facts

pytestmark = pytest.mark.slow

needs_torchvision = pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision missing")


def slow_nms(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[int]:
    kept: list[int] = []
    for j in sorted(range(len(scores)), key=lambda k: -scores[k]):  # sorted() is stable
        for i in kept:
            width = max(boxes.dtype.type(0), min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0]))
            height = max(boxes.dtype.type(0), min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1]))
            shared = width * height
            area_i, area_j = ((b[2] - b[0]) * (b[3] - b[1]) for b in (boxes[i], boxes[j]))
            union = area_i + area_j - shared
            if union != 0 and float(shared / union) > threshold:
                break
        else:
            kept.append(j)
    return kept


def random_boxes(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Crowded boxes on a coarse grid: many equal ones, many of zero area, few distinct scores."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 12, size=(n, 2))
    boxes = np.concatenate([corner, corner + rng.integers(0, 6, size=(n, 2))], axis=1)
    return boxes.astype(np.float32), (rng.integers(0, 9, size=n) / 8).astype(np.float32)


def fallback_nms(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[int]:
    kept = torchvision_operators.nms(torch.from_numpy(boxes), torch.from_numpy(scores), threshold)
    assert kept.dtype == torch.int64
    return kept.tolist()


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("block", [1, 10, 500])
def test_nms_is_the_loop_over_its_definition(block: int, threshold: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision_operators, "_NMS_BLOCK", block)
    boxes, scores = random_boxes(block, n=157)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    assert (areas == 0).any()  # the data hold the hard cases
    assert len(np.unique(boxes, axis=0)) < len(boxes)
    assert fallback_nms(boxes, scores, threshold) == slow_nms(boxes, scores, threshold)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_nms_accepts_other_precisions(dtype: torch.dtype) -> None:
    boxes, scores = (torch.from_numpy(a) for a in random_boxes(11, n=61))  # small integers and eighths: exact in all
    expected = slow_nms(boxes.numpy(), scores.numpy(), 0.45)
    assert torchvision_operators.nms(boxes.to(dtype), scores.to(dtype), 0.45).tolist() == expected


def test_nms_by_hand() -> None:
    unit, right_half, far = [0.0, 0.0, 2.0, 1.0], [1.0, 0.0, 2.0, 1.0], [5.0, 5.0, 6.0, 6.0]
    boxes, scores = np.array([far, right_half, unit]), np.array([0.1, 0.5, 0.9])  # IoU of the last two is one half
    assert fallback_nms(boxes, scores, 0.5) == [2, 1, 0]  # not greater than the threshold: stays
    assert fallback_nms(boxes, scores, 0.49) == [2, 0]
    assert fallback_nms(np.array([unit] * 3), np.array([0.5] * 3), 0.9) == [0]  # a tie goes to the first
    assert fallback_nms(np.array([unit] * 3), np.array([0.5] * 3), 1.0) == [0, 1, 2]
    points = np.array([[1.0, 1.0, 1.0, 1.0]] * 2)
    assert fallback_nms(points, np.array([0.2, 0.3]), 0.0) == [1, 0]  # IoU 0/0 removes nothing
    tenth = np.array([[0, 0, 10, 1], [0, 0, 1, 1]], dtype=np.float32)  # IoU is float32(0.1), a little above 0.1
    assert fallback_nms(tenth, np.array([0.9, 0.8], dtype=np.float32), 0.1) == [0]
    assert fallback_nms(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), 0.5) == []


@pytest.mark.parametrize(("boxes", "scores"), [((3, 5), (3,)), ((3, 4), (2,)), ((4,), (4,)), ((3, 4), (3, 1))])
def test_nms_names_the_shapes_it_refuses(boxes: tuple[int, ...], scores: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match=facts("[N, 4]", str(list(boxes)))):
        torchvision_operators.nms(torch.zeros(boxes), torch.zeros(scores), 0.5)


@needs_torchvision
def test_ensure_twice_changes_nothing() -> None:
    first = torchvision_operators.ensure()
    libraries = len(torchvision_operators._libraries)
    assert libraries == first
    assert torchvision_operators.ensure() is first
    assert len(torchvision_operators._libraries) == libraries


@needs_torchvision
def test_torchvision_ops_work_after_ensure() -> None:
    torchvision_operators.ensure()
    import torchvision.ops

    boxes, scores = random_boxes(3, n=70)
    classes = np.arange(70) % 3
    expected = [
        k
        for c in range(3)
        for k in np.flatnonzero(classes == c)[slow_nms(boxes[classes == c], scores[classes == c], 0.4)]
    ]
    tensors = torch.from_numpy(boxes), torch.from_numpy(scores)
    assert torchvision.ops.nms(*tensors, 0.4).tolist() == slow_nms(boxes, scores, 0.4)
    kept = torchvision.ops.batched_nms(*tensors, torch.from_numpy(classes), 0.4)
    assert sorted(kept.tolist()) == sorted(expected)
    assert tensors[1][kept].diff().le(0).all()
    plane, rois = torch.rand(1, 2, 9, 11), torch.tensor([[0.0, 1.0, 2.0, 5.0, 6.0], [0.0, 0.0, 0.0, 2.0, 8.0]])
    pooled = torchvision.ops.roi_align(plane, rois, (2, 2), sampling_ratio=2)
    expected = [slow_roi_align(plane.numpy(), roi, 1.0, (2, 2), 2, False) for roi in rois.tolist()]
    np.testing.assert_allclose(pooled, expected, rtol=1e-5)
    assert torchvision.ops.roi_align(plane, rois[:0], (2, 2)).shape == (0, 2, 2, 2)


def slow_roi_align(features, roi, scale, bins, ratio, aligned):
    """By the definition in torchvision's kernel, sample by sample, in NumPy."""
    image, *corners = roi
    x1, y1, x2, y2 = np.array(corners) * scale - (0.5 if aligned else 0.0)
    sides = np.array([y2 - y1, x2 - x1]) if aligned else np.maximum([y2 - y1, x2 - x1], 1.0)
    counts = [ratio if ratio > 0 else max(1, int(np.ceil(side / n))) for side, n in zip(sides, bins, strict=True)]
    plane, out = features[int(image)], np.zeros((features.shape[1], *bins))
    size = plane.shape[1:]
    for i, j in np.ndindex(*bins):
        for k, m in np.ndindex(*counts):
            point = np.array([y1, x1]) + (np.array([i, j]) + (np.array([k, m]) + 0.5) / counts) * sides / bins
            if (point < -1).any() or (point > size).any():
                continue
            point = np.clip(point, 0, np.array(size) - 1)
            low = point.astype(int)
            (a, b), (y, x) = point - low, low
            yy, xx = np.minimum(low + 1, np.array(size) - 1)
            out[:, i, j] += (1 - a) * (1 - b) * plane[:, y, x] + (1 - a) * b * plane[:, y, xx]
            out[:, i, j] += a * (1 - b) * plane[:, yy, x] + a * b * plane[:, yy, xx]
    return out / np.prod(counts)


@pytest.mark.parametrize(("ratio", "aligned"), [(2, False), (2, True), (3, False), (-1, False)])
def test_pooled_regions_are_those_of_the_definition(ratio, aligned, monkeypatch):
    """Regions beyond the edges, of no size and of images in any order, some in parts."""
    monkeypatch.setattr(torchvision_operators, "_ROI_ALIGN_ELEMENTS", 2 * 3 * 4 * 9)
    random = np.random.default_rng(5)
    features = random.normal(size=(3, 3, 7, 9))
    corners = random.uniform(-20, 60, (8, 4))
    corners[:, 2:] = corners[:, :2] + random.uniform(0, 50, (8, 2))
    corners[3, 2:] = corners[3, :2]
    rois = np.concatenate([random.integers(0, 3, (8, 1)), corners], axis=1)
    expected = np.stack([slow_roi_align(features, roi, 0.2, (4, 2), ratio, aligned) for roi in rois])
    pooled = torchvision_operators.roi_align(torch.tensor(features), torch.tensor(rois), 0.2, 4, 2, ratio, aligned)
    np.testing.assert_allclose(pooled.numpy(), expected, atol=1e-12)
    plane = torch.tensor(features, requires_grad=True)

    def pool(x):
        return torchvision_operators.roi_align(x, torch.tensor(rois[:2]), 0.2, 4, 2, ratio, aligned)

    assert torch.autograd.gradcheck(pool, plane)


#: A fresh interpreter that has imported torch and nothing else, forked for every program that comes on its input:
#: an import of torch takes longer than all of them. The module is loaded by file, so that nothing else of calibrant
#: imports torchvision first.
FRESH = f"""
import importlib.util, json, os, sys, traceback
spec = importlib.util.spec_from_file_location('fallback', {torchvision_operators.__file__!r})
fallback = importlib.util.module_from_spec(spec); spec.loader.exec_module(fallback)
assert 'torchvision' not in sys.modules
for line in sys.stdin:
    code, path = json.loads(line)
    if not (child := os.fork()):
        sys.path[:0] = path
        try:
            exec(compile(code, 'program', 'exec'), {{'fallback': fallback, 'sys': sys}})
        except BaseException:
            print(traceback.format_exc())
        print(flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print('the program crashed\\n', flush=True)
"""


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[..., str]]:
    """Run code in a fresh interpreter with warnings as errors; `path` goes in front of the installed packages."""
    command = [sys.executable, "-W", "error", "-c", FRESH]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def call(code: str, *, path: Path | None = None) -> str:
            process.stdin.write(json.dumps([code, [] if path is None else [str(path)]]) + "\n")
            process.stdin.flush()
            lines = []
            while (line := process.stdout.readline()) != "\n":
                assert line, "the fresh interpreter has ended"
                lines.append(line)
            return "".join(lines).strip()

        yield call
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.slow
@needs_torchvision
def test_fresh_process_imports_torchvision_and_torchmetrics_and_detects(run: Callable[..., str]) -> None:
    code = """
import torch
installed = fallback.ensure()
import torchmetrics, torchvision
from torchvision.models import detection
assert torchvision.extension._has_ops() is not installed
torch.manual_seed(0)
model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=5).eval()
model.roi_heads.score_thresh = 0.0
with torch.inference_mode():
    (found,) = model([torch.rand(3, 64, 96)])
assert 0 < len(found["boxes"]) <= 100 and found["boxes"].isfinite().all(), found
assert found["scores"].diff().le(0).all() and set(found["labels"].tolist()) <= {1, 2, 3, 4}
for label in found["labels"].unique():
    iou = torchvision.ops.box_iou(*[found["boxes"][found["labels"] == label]] * 2)
    assert iou.triu(1).max() <= model.roi_heads.nms_thresh + 1e-5
print("done")
"""
    assert run(code) == "done"


def test_ensure_leaves_a_torchvision_that_imports_or_is_absent_alone(run: Callable[..., str], tmp_path: Path) -> None:
    """Whatever its extension is called: newer versions have _C_stable.so, and other tests of the file system failed."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("import torch; library = torch.library.Library('torchvision', 'DEF')\n"
                                         "library.define('nms(Tensor a, Tensor b, float c) -> Tensor')\n")  # fmt: skip
    code = """
assert fallback.ensure() is False and "torchvision" in sys.modules
fallback.ensure.cache_clear()
sys.modules["torchvision"] = None  # Python's mark of a module that is not there
assert fallback.ensure() is False and sys.modules["torchvision"] is None
assert fallback._libraries == []
print("done")
"""
    assert run(code, path=tmp_path) == "done"


@needs_torchvision
def test_ensure_mends_an_import_that_failed_before(run: Callable[..., str]) -> None:
    code = """
try:
    import torchvision
    alone = True
except RuntimeError as error:
    assert "torchvision::nms" in str(error)
    alone = False
assert fallback.ensure() is not alone
import torchvision.ops, torchvision.models
assert torchvision.ops.nms(*(fallback.torch.zeros(shape) for shape in ((0, 4), (0,))), 0.5).shape == (0,)
print("done")
"""
    assert run(code) == "done"


@pytest.mark.parametrize("failure", ["import a_module_that_is_not_there", "raise RuntimeError('operators are tired')"])
def test_ensure_passes_on_what_fails_for_another_reason(run: Callable[..., str], tmp_path: Path, failure: str) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(f"from . import extension\n{failure}\n")
    (package / "extension.py").touch()
    code = """
try:
    fallback.ensure()
except (ImportError, RuntimeError) as error:
    assert "there" in str(error) or "tired" in str(error)
    assert fallback._libraries == []
    print("done")
"""
    assert run(code, path=tmp_path) == "done"
