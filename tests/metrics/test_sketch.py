"""ConfidenceSketch against the slow reference, merging, bad input; of a file only what was written is believed."""

import hashlib
import json
import math
import os

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from calibrant.metrics import ConfidenceSketch, ece
from calibrant.metrics.grid import CELLS
from tests.helpers.errors import facts
from tests.reference import metrics as reference


def of(confidence, correct):
    sketch = ConfidenceSketch()
    sketch.update_confidence(torch.as_tensor(confidence), torch.as_tensor(correct))
    return sketch


def close(value, expected, bound):
    return (math.isnan(value) and math.isnan(expected)) or abs(value - expected) <= bound + 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_logits(dtype):
    generator = torch.Generator().manual_seed(1)
    z = (4 * torch.randn(257, 7, generator=generator, dtype=torch.float64)).to(dtype)
    y = torch.randint(0, 7, (257,), generator=generator)
    sketch = ConfidenceSketch()
    sketch.update(z, y)
    values = sketch.compute()
    exact = z.double()
    confidence, predicted = exact.softmax(1).max(1)
    correct = (predicted == y).numpy()
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    assert values["nll"] == pytest.approx(reference.nll(exact.numpy(), y.numpy()), abs=tolerance)
    assert values["brier"] == pytest.approx(reference.brier(exact.numpy(), y.numpy()), abs=tolerance)
    assert values["ece"] == pytest.approx(reference.ece(confidence.numpy(), correct), abs=tolerance)
    assert values["aurc"] == pytest.approx(reference.aurc(confidence.numpy(), correct), abs=tolerance)


def test_first_of_tied_maxima_is_the_prediction():
    z = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 3.0, 3.0]])
    sketch = ConfidenceSketch()
    sketch.update(z, torch.tensor([0, 1, 2, 1]))
    assert sketch.compute()["accuracy"] == 0.5


def test_saturated_predictions_are_ranked():
    """float32 softmax is 1 for all of these; their order is in the logits."""
    z = torch.zeros(6, 2)
    z[:, 0] = torch.tensor([20.0, 22.0, 24.0, 26.0, 28.0, 30.0])
    sketch = ConfidenceSketch()
    sketch.update(z, torch.tensor([1, 1, 0, 0, 0, 0]))
    assert sketch.compute()["aurc"] == pytest.approx((1 / 5 + 2 / 6) / 6, abs=1e-12)


def test_large_logits():
    sketch = ConfidenceSketch()
    sketch.update(torch.tensor([[1e4, -1e4, 0.0], [0.0, 1e4, 9.9e3]]), torch.tensor([0, 0]))
    values = sketch.compute()
    assert all(math.isfinite(value) for value in values.values())
    assert values["nll"] == pytest.approx(5e3)


def test_probabilities_give_what_logits_give():
    z = torch.randn(101, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    y = torch.arange(101) % 5
    a, b = ConfidenceSketch(), ConfidenceSketch(kind="probabilities")
    a.update(z, y)
    b.update(z.softmax(1), y)
    for name, value in a.compute().items():
        assert b.compute()[name] == pytest.approx(value, abs=1e-6, nan_ok=True), name


def test_pixels_are_pooled_and_ignored_ones_count_nowhere():
    generator = torch.Generator().manual_seed(3)
    z = 3 * torch.randn(3, 4, 5, 7, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 4, (3, 5, 7), generator=generator)
    y[torch.rand(3, 5, 7, generator=generator) < 0.3] = 255
    whole, flat = ConfidenceSketch(ignore_index=255), ConfidenceSketch()
    whole.update(z, y)
    keep = y != 255
    flat.update(z.movedim(1, -1)[keep], y[keep])
    assert whole.compute() == pytest.approx(flat.compute(), nan_ok=True)
    assert whole.summary().samples == int(keep.sum())


def test_any_score_ranks_and_calibration_stays_of_the_confidence():
    z = 5 * torch.randn(300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    y = torch.arange(300) % 4
    sketch = ConfidenceSketch(score=lambda v: v.amax(1))
    sketch.update(z, y)
    values, bounds = sketch.compute(), sketch.bounds()
    correct = (z.argmax(1) == y).numpy()
    assert close(values["aurc"], reference.aurc(z.amax(1).numpy(), correct), bounds["aurc"])
    assert values["ece"] == pytest.approx(reference.ece(z.softmax(1).amax(1).numpy(), correct))
    curve = sketch.summary().risk_coverage_curve()
    assert curve.threshold[0] <= float(z.amax()) <= curve.threshold[0] + 1e-3
    with pytest.raises(ValueError, match=facts("AECE")):
        sketch.summary().measure("aece")


@pytest.mark.slow
def test_sketches_add_up_to_the_whole():
    rng = np.random.default_rng(6)
    c, correct = rng.random(1000), rng.random(1000) < 0.5
    whole = of(c, correct)
    parts = [of(c[i::3], correct[i::3]) for i in range(3)]
    merged = sum(parts)
    for name, value in whole.compute().items():
        assert merged.compute()[name] == pytest.approx(value, abs=1e-12), name
    assert (merged.cells == whole.cells).all()
    assert parts[0].summary().samples == 334


def test_counts_stay_exact_far_beyond_2_24_and_sums_do_not_saturate():
    sketch = of(torch.tensor([0.9, 0.9, 0.6, 0.7, 0.7]), torch.tensor([1, 0, 1, 1, 0]))
    values = sketch.compute()
    for _ in range(33):
        sketch = sketch + sketch
    assert sketch.summary().samples == 5 * 2**33
    for name in ("ece", "mce", "accuracy", "mean_confidence", "overconfidence"):
        assert sketch.compute()[name] == pytest.approx(values[name], abs=1e-12), name


BAD_UPDATES = [
    (lambda s: s.update(torch.full((3, 2), math.nan), torch.zeros(3, dtype=torch.int64)), "logits"),
    (lambda s: s.update(torch.tensor([[0.0, math.inf]]), torch.tensor([0])), "logits"),
    (lambda s: s.update(torch.tensor([[0.0, -math.inf]]), torch.tensor([1])), "logits"),
    (lambda s: s.update(torch.zeros(3, 2), torch.tensor([0, 1, 2])), "2", "row 2"),
    (lambda s: s.update(torch.zeros(3, 2), torch.tensor([0, 1])), "[3]"),
    (lambda s: s.update(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)), "N", "1"),
    (lambda s: s.update(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64)), "C", "2"),
    (lambda s: s.update(torch.zeros(3, 2), torch.zeros(3)), "labels"),
    (lambda s: s.update_confidence(torch.tensor([0.5, 1.1]), torch.tensor([1, 0])), "[0, 1]"),
    (lambda s: s.update_confidence(torch.tensor([0.5, math.nan]), torch.tensor([1, 0])), "[0, 1]"),
    (lambda s: s.update_confidence(torch.tensor([0.5]), torch.tensor([2])), "correct", "2"),
    (lambda s: s.update_confidence(torch.tensor([0.5]), torch.tensor([1, 0])), "correct"),
    (lambda s: s.update_confidence(torch.tensor([]), torch.tensor([])), "N", "1"),
]


@pytest.mark.parametrize(("update", "named"), [(update, named) for update, *named in BAD_UPDATES])
def test_bad_input_leaves_the_sketch_as_it_was(update, named):
    sketch = of(torch.rand(10), torch.rand(10) < 0.5)
    before = sketch.compute()
    with pytest.raises(ValueError, match=facts(*named)):
        update(sketch)
    sketch._computed = None
    assert sketch.compute() == before


def test_float32_probabilities_on_an_edge():
    p = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.65, 0.35], [0.62, 0.38]])
    sketch = ConfidenceSketch(kind="probabilities")
    sketch.update(p, torch.tensor([0, 1, 0, 0]))
    confidence, correct = p.amax(1), torch.tensor([True, False, True, True])
    assert sketch.compute()["ece"] == pytest.approx(ece(confidence, correct), abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_labels_of_any_whole_type(dtype):
    sketch = ConfidenceSketch()
    sketch.update(torch.eye(3), torch.arange(3).to(dtype))
    assert sketch.compute()["accuracy"] == 1


def test_samples_without_logits_leave_out_nll():
    sketch = of(torch.rand(10), torch.rand(10) < 0.5)
    sketch.update(torch.randn(10, 3), torch.arange(10) % 3)
    assert "nll" not in sketch.compute()


@pytest.mark.parametrize("score", [lambda z: z.amax(1, keepdim=True), lambda z: z.amax(1) * math.nan, lambda z: 1.0])
def test_bad_scores_are_refused(score):
    sketch = ConfidenceSketch(score=score)
    with pytest.raises(ValueError, match=facts("score")):
        sketch.update(torch.randn(5, 3), torch.arange(5) % 3)


def test_sketches_of_different_scores_do_not_add():
    with pytest.raises(ValueError, match=facts("score")):
        ConfidenceSketch(score=lambda z: z.amax(1)) + ConfidenceSketch()


@pytest.fixture
def path(tmp_path):
    generator = torch.Generator().manual_seed(0)
    sketch = ConfidenceSketch(ignore_index=9)
    sketch.update(torch.randn(70, 4, generator=generator), torch.randint(0, 4, (70,), generator=generator))
    sketch.save(tmp_path / "s.safetensors")
    return tmp_path / "s.safetensors"


def parts(path):
    """Arrays and metadata of a sketch's file."""
    with safe_open(path, framework="pt") as file:
        return load_file(path), file.metadata()


def rewritten(path, arrays=None, metadata=None, *, checksum=False):
    """The file with some arrays and metadata changed; without its checksum, unless that is left to be stale."""
    tensors, own = parts(path)
    if not checksum:
        del own["checksum"]
    save_file(tensors | (arrays or {}), path, metadata=own | (metadata or {}))


def values(sketch):
    return {name: getattr(sketch, name).tolist() for name in ("base_counts", "base_sums", "moments")}


def test_the_checksum_is_what_the_docs_say(path):
    tensors, metadata = parts(path)
    digest = hashlib.sha256(
        json.dumps([metadata[name] for name in ("format", "version", "cells", "settings")]).encode()
    )
    for name in sorted(tensors):
        digest.update(json.dumps([name, str(tensors[name].dtype), list(tensors[name].shape)]).encode())
        digest.update(tensors[name].numpy().tobytes())
    assert metadata["checksum"] == "sha256:" + digest.hexdigest()


def test_a_file_without_a_checksum_is_read(path):
    expected = ConfidenceSketch.load(path)
    rewritten(path)
    assert values(ConfidenceSketch.load(path)) == values(expected)
    assert ConfidenceSketch.load(path).ignore_index == 9


def test_other_contents_than_the_checksum_says_are_refused(path):
    tensors, _ = parts(path)
    moments = tensors["moments"].clone()
    moments[0] += 1e-9  # which nothing else could tell
    rewritten(path, {"moments": moments}, checksum=True)
    with pytest.raises(ValueError, match=facts("checksum")):
        ConfidenceSketch.load(path)
    rewritten(path, {"moments": moments})
    ConfidenceSketch.load(path)


def of_moments(tensors, at, value):
    changed = tensors["moments"].clone()
    changed[at] = value
    return {"moments": changed}


CHANGES = {
    "negative": lambda t: of_moments(t, 0, -1.0),
    "nan": lambda t: of_moments(t, 1, torch.nan),
    "infinite brier": lambda t: of_moments(t, 2, torch.inf),
    "more than all": lambda t: of_moments(t, 4, 71.0),
    "sums": lambda t: {"base_sums": t["base_sums"] + 1e6},
    "negative sums": lambda t: {"base_sums": -t["base_sums"]},
    "nan sums": lambda t: {"base_sums": t["base_sums"] * torch.nan},
    "bins": lambda t: {"base_counts": t["base_counts"].roll(2)},
    "cells": lambda t: {"filled": t["filled"].flip(0)},
    "twice": lambda t: {"filled": t["filled"].clamp(max=int(t["filled"][0]))},
    "counts of none": lambda t: {"counts": t["counts"] * 0},
    "huge counts": lambda t: {"counts": t["counts"] + 2**61},
    "outside": lambda t: {"filled": t["filled"] + 2 * CELLS},
    "shape": lambda t: {"filled": t["filled"][:, None]},
    "number": lambda t: {"counts": torch.tensor(3)},
    "type": lambda t: {"base_sums": t["base_sums"].float()},
    "half": lambda t: {"moments": t["moments"].bfloat16()},
    "length": lambda t: {"base_counts": t["base_counts"][:-2].clone()},
    "more": lambda t: {"extra": torch.zeros(1)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_arrays_must_agree(path, change):
    rewritten(path, CHANGES[change](parts(path)[0]))
    with pytest.raises(ValueError, match=facts(str(path), "sketch")):
        ConfidenceSketch.load(path)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ("{", "settings"),
        ("[" * 5000, "settings"),
        ("[]", "ignore_index"),
        ('{"kind": "logits"}', "ignore_index"),
        ('{"kind": "logits", "ignore_index": null, "score": "os.system"}', "settings"),
        ('{"kind": "vibes", "ignore_index": null}', "kind"),
        ('{"kind": ["logits"], "ignore_index": null}', "kind"),
        ('{"kind": "logits", "ignore_index": 1.5}', "ignore_index"),
        ('{"kind": "logits", "ignore_index": true}', "ignore_index"),
        ('{"kind": "logits", "ignore_index": 99999999999999999999}', "ignore_index"),
        ('{"kind": "logits", "ignore_index": NaN}', "settings"),
    ],
)
def test_settings_are_checked(path, settings, word):
    rewritten(path, metadata={"settings": settings})
    with pytest.raises(ValueError, match=facts(str(path), "sketch", word)):
        ConfidenceSketch.load(path)


def test_metadata_of_others_is_refused(path):
    rewritten(path, metadata={"hook": "x"})
    with pytest.raises(ValueError, match=facts("metadata", "checksum")):
        ConfidenceSketch.load(path)


def test_what_is_no_file_of_that_size_is_not_read(tmp_path):
    large, pipe = tmp_path / "large", tmp_path / "pipe"
    with open(large, "wb") as file:
        file.truncate(10**9)
    os.mkfifo(pipe)
    (tmp_path / "claim").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    for name, fact in (("large", "67,108,864"), ("pipe", "pipe"), ("claim", ".safetensors"), ("missing", "missing")):
        with pytest.raises(ValueError, match=facts(fact)):
            ConfidenceSketch.load(tmp_path / name)


def test_save_and_load(tmp_path):
    sketch = of(torch.rand(500), torch.rand(500) < 0.7)
    sketch.save(tmp_path / "s.safetensors")
    again = ConfidenceSketch.load(tmp_path / "s.safetensors")
    assert again.compute() == sketch.compute()
    assert (again + sketch).summary().samples == 1000
    assert (tmp_path / "s.safetensors").stat().st_size < 50_000
