"""Options of any value: one sentence that says what was expected, before memory and time are taken."""

import os
import time

import numpy as np
import pytest
import torch

from calibrant.metrics import ConfidenceSketch, Judged, ece, intervals, paired_differences
from calibrant.posthoc import HistogramBinning, TemperatureScaling

LONG = "9" * 5000

CASES = [
    ("audit plain.npz -o none --replicates 1000000000", "replicates must be a whole number of at most 10,000"),
    ("audit plain.npz -o none --replicates 19", "replicates must be a whole number of at least 20, got 19"),
    ("audit plain.npz -o none --seed 18446744073709551616", "seed must be a whole number of at most 9,223,372,036,854"),
    ("audit plain.npz -o none --seed -1", "seed must be a whole number of at least 0, got -1"),
    ("audit plain.npz -o none --level 0.9999999999999999", "level must lie at least 1e-09 above 0 and below 1"),
    ("audit plain.npz -o none --level 1e-320", "level must lie at least 1e-09 above 0 and below 1"),
    ("audit plain.npz -o none --level nan", "level must lie between 0 and 1, got nan"),
    (f"audit plain.npz -o none --seed {LONG}", "Invalid value for '--seed'"),
    ("fit plain.npz --seed 18446744073709551616", "seed must be a whole number of at most"),
    ("fit plain.npz --target-risk 1e-320", "--target-risk must be a number at least 1e-09 above 0 and below 1"),
    ("fit plain.npz --confidence 0.9999999999999999", "confidence must be a number at least 1e-09 above 0 and below"),
    ("fit plain.npz --confidence nan", "confidence must be a number between 0 and 1, got nan"),
    ("lens -o none --logits 1,nan", "--logits must be finite numbers, got '1,nan'"),
    (f"lens -o none --logits 1,{LONG}", "--logits must be finite numbers"),
    ("lens -o none --logits 1" + 1000 * ",1", "--logits must be from 2 to 1,000 numbers, got 1,001"),
    ("lens -o none --losses ecp:strength=1e308", "loss 'ecp:strength=1e308' has no finite gradient for these logits"),
    ("lens -o none --losses acls:foo=1", "loss 'acls' has no parameter 'foo': expected one of margin, lambda1"),
    ("lens -o none --losses ls:alpha=x", "loss 'ls:alpha=x': alpha must be a number between 0 and 1, got 'x'"),
    ("lens -o none --losses ls:weight=x", "weight must be one finite, non-negative number per class, got 'x'"),
    ("lens -o none --losses crl:num_samples=1e12", "num_samples must be a number between 0 and 1e+08"),
    ("lens --predictions plain.npz --batch-size 99999999999", "--batch-size must be at most 1,048,576, got 99,999,"),
    ("lens --predictions masks.npz", "masks.npz: a lens looks at classifications, the file holds segmentation"),
    ("lens --predictions pipe.npz", "pipe.npz: expected a file, got a named pipe"),
    ("export --policy plain.json --logits-only --opset 99999", "opset must be a whole number from 13 to"),
    ("export --policy plain.json --logits-only --trust-code", "--trust-code goes with --run"),
    ("export --policy pipe.npz --logits-only", "pipe.npz: expected a file, got a named pipe"),
    ("export --policy plain.json --onnx pipe.npz", "pipe.npz: expected a file, got a named pipe"),
    ("export --policy plain.json --onnx plain.json --inputs pipe.npz", "--inputs pipe.npz: expected a file, got a"),
    ("export --policy plain.json --model torch.nn:Identity --input-shape 1000000,1000000", "at most 16 dimensions and"),
    (f"export --policy plain.json --model torch.nn:Identity --input-shape {LONG}", "--input-shape must be whole"),
    (
        "export --policy plain.json --model torch.nn:Identity --input-shape 3 --model-args " + "[" * 100_000,
        "nested deeper than 64 levels",
    ),
    (
        'export --policy plain.json --model torch.nn:Identity --input-shape 3 --model-args {"a":1,"a":2}',
        "the name 'a' appears twice",
    ),
    ("methods acsl", "unknown loss 'acsl': expected one of ce, ls"),
]  # fmt: skip


@pytest.fixture
def files(here):
    os.mkfifo(here / "pipe.npz")
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((2, 3, 4, 4)), rng.integers(0, 3, (2, 4, 4))
    np.savez(here / "masks.npz", logits=logits, labels=labels, kind="segmentation")


@pytest.mark.parametrize(("arguments", "words"), CASES, ids=[case[:60] for case, _ in CASES])
def test_bad_options_are_one_sentence(files, refuse, arguments, words):
    start = time.process_time()
    text = refuse(*arguments.split())
    assert words in text
    assert len(text) < 500
    assert time.process_time() - start < 10


def test_bins_are_bounded():
    many = 10**9
    logits, labels = torch.randn(50, 3), torch.randint(0, 3, (50,))
    sketch = ConfidenceSketch()
    sketch.update(logits, labels)
    for call in (
        lambda: ece([0.5, 0.6], [True, False], bins=many),
        lambda: sketch.summary().ece(many),
        lambda: sketch.summary().aece(many),
        lambda: HistogramBinning(bins=many).fit(logits, labels),
        lambda: TemperatureScaling("ece", bins=many).fit(logits, labels),
    ):
        with pytest.raises(ValueError, match="bins must be a whole number of at most 100,000, got 1,000,000,000"):
            call()


def test_replicates_and_seeds_are_bounded():
    sketch = ConfidenceSketch()
    sketch.update(torch.randn(50, 3), torch.randint(0, 3, (50,)))
    pair = Judged(np.full(30, 0.5), np.arange(30) % 2 == 0)
    for call in (
        lambda **more: intervals(sketch.summary(), **more),
        lambda **more: paired_differences(pair, pair, **more),
    ):
        with pytest.raises(ValueError, match="replicates must be a whole number of at most 10,000, got 1,000,000,000"):
            call(replicates=10**9)
        with pytest.raises(ValueError, match="seed must be a whole number of at most"):
            call(seed=2**63)
        with pytest.raises(ValueError, match=r"seed must be a whole number of at most .*, got more"):
            call(seed=10**5000)
