"""The integrations of examples/ with the real libraries: a Calibrant loss where each takes one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.examples import EXAMPLES, range_rows, seed_rows
from calibrant import Audit, Predictions
from calibrant.losses import get
from calibrant.metrics import ConfidenceSketch, ece  # the sketch first: it makes torchvision importable

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow  # they train
assert ConfidenceSketch

#: Of the libraries, about themselves; what the examples do must not warn.
QUIET = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec.*is deprecated",
    "ignore:The '.*_dataloader' does not have many workers",
    "ignore:.*torch.jit.*is deprecated:DeprecationWarning",
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples write where they are run, and import their common parts from beside them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])


def example(name: str) -> Any:
    return importlib.import_module(name)


def assert_shows_overconfidence_and_less_of_it(audits: Mapping[str, Audit], printed: str) -> None:
    """What every example is there to show; its ten seeds are ``./dev bench examples``."""
    ce, other = audits.values()
    assert ce.verdict.startswith("Overconfident")
    assert ce.intervals["ece"][0] > 0.05
    assert other.metrics["ece"] < ce.metrics["ece"] / 2
    assert other.metrics["accuracy"] > ce.metrics["accuracy"] - 0.05
    lines = [line for line in printed.splitlines() if "ECE" in line]
    assert len(lines) == 2
    for line, (name, audit) in zip(lines, audits.items(), strict=True):
        assert line.startswith(f"{name}: accuracy {audit.metrics['accuracy']:.1%}, ECE {audit.metrics['ece']:.1%} ")
        assert line.endswith(audit.verdict)


# ---------------------------------------------------------------------- own loop


def test_own_loop_shows_overconfidence_and_less_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    audits = example("own_loop").main()
    assert_shows_overconfidence_and_less_of_it(audits, capsys.readouterr().out)
    saved = Predictions.open("mbls.npz").load()
    right = saved.logits.argmax(1) == saved.labels
    assert audits["MbLS"].metrics["accuracy"] == right.mean() > 0.6
    probabilities = torch.tensor(saved.logits, dtype=torch.float64).softmax(1).numpy()
    assert audits["MbLS"].metrics["ece"] == pytest.approx(ece(probabilities.max(1), right), abs=1e-6)


def test_own_loop_keeps_the_memory_of_crl() -> None:
    loss: Any = get("crl")
    example("own_loop").train(loss, epochs=3)
    assert int(loss.history.epochs) == 3
    assert int(loss.history.counts.max()) == 3  # some were right every time
    assert len(loss.history.counts) == 600


# ---------------------------------------------------------------------- Lightning

CPU = {"accelerator": "cpu"}


@QUIET
def test_lightning_shows_overconfidence_and_less_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    audits = example("lightning_module").main(epochs=20, **CPU)
    assert_shows_overconfidence_and_less_of_it(audits, capsys.readouterr().out)


@QUIET
def test_lightning_logs_both_terms_and_the_metrics_of_the_whole_set() -> None:
    import lightning

    class Recorder(lightning.Callback):
        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            self.logged = {name: float(value) for name, value in trainer.callback_metrics.items()}

    recorder = Recorder()
    predictions = (
        example("lightning_module").train(get("mbls", margin=0.5), epochs=2, callbacks=[recorder], **CPU).load()
    )
    assert {"train/fidelity", "train/regulariser", "val/ece", "val/aurc", "val/nll"} <= set(recorder.logged)
    assert recorder.logged["train/regulariser"] > 0
    expected = nn.functional.cross_entropy(torch.tensor(predictions.logits), torch.tensor(predictions.labels))
    assert recorder.logged["val/nll"] == pytest.approx(float(expected), abs=1e-4)


# ---------------------------------------------------------------------- Hugging Face

SHORT = {"max_steps": 3, "disable_tqdm": True, "use_cpu": True, "dataloader_pin_memory": False, "optim": "sgd"}


def logits_after(loss: Any, **arguments: Any) -> np.ndarray[Any, Any]:
    predictions = example("hf_trainer").train(loss, **(SHORT | arguments)).load()
    return predictions.logits


@QUIET
def test_trainer_shows_overconfidence_and_less_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    audits = example("hf_trainer").main(use_cpu=True)
    assert_shows_overconfidence_and_less_of_it(audits, capsys.readouterr().out)


@QUIET
def test_accumulated_steps_give_the_gradient_of_the_whole_batch() -> None:
    """The Trainer leaves the division to the function: two halves train as one whole does."""
    whole = logits_after(get("mbls", margin=0.5, reduction="sum"), per_device_train_batch_size=64)
    halves = logits_after(
        get("mbls", margin=0.5, reduction="sum"), per_device_train_batch_size=32, gradient_accumulation_steps=2
    )
    np.testing.assert_allclose(halves, whole, atol=1e-5)
    assert np.abs(logits_after(get("mbls", margin=0.5, reduction="sum"), learning_rate=0.0) - whole).max() > 1e-4


def test_labels_that_do_not_count_are_left_out_of_the_mean() -> None:
    compute = example("hf_trainer").for_trainer(get("ls", reduction="sum"))
    logits, labels = torch.randn(5, 3), torch.tensor([0, -100, 2, -100, 1])
    expected = nn.functional.cross_entropy(logits, labels, label_smoothing=0.05)
    torch.testing.assert_close(compute({"logits": logits}, labels), expected)
    torch.testing.assert_close(compute({"logits": logits}, labels, num_items_in_batch=6), expected / 2)


# ---------------------------------------------------------------------- tokens


def test_decoder_does_not_see_what_follows() -> None:
    torch.manual_seed(0)
    model = example("causal_lm").Decoder(classes=7)
    inputs = torch.randint(7, (2, 9))
    changed = inputs.clone()
    changed[:, 5] = (inputs[:, 5] + 1) % 7
    before, after = model(inputs), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert (before[:, 5:] - after[:, 5:]).abs().amax(-1).min() > 0


def test_tokens_are_compared_with_the_next_character() -> None:
    """Worked by hand: "abca" asks for b, c and a; padding asks for nothing."""
    module = example("causal_lm")
    inputs, labels = module.encode(["abca", "cb"])
    assert inputs[:, :5].tolist() == [[0, 1, 2, 0, 0], [2, 1, 0, 0, 0]]
    logits = torch.randn(2, module.LENGTH, 3)
    said, target = module.shift(logits, labels)
    assert target[:, :4].tolist() == [[1, 2, 0, -100], [1, -100, -100, -100]]
    assert (target[:, 4:] == -100).all()
    p = logits.log_softmax(-1)
    expected = -(p[0, 0, 1] + p[0, 1, 2] + p[0, 2, 0] + p[1, 0, 1]) / 4
    torch.testing.assert_close(get("ce")(said.transpose(1, 2), target), expected)


def test_token_file_leaves_padding_out() -> None:
    module = example("causal_lm")
    audits = module.main(epochs=1)
    assert list(audits) == ["cross-entropy", "MbLS"]
    saved = Predictions.open("mbls.npz")
    arrays = saved.load()
    assert saved.kind == "tokens"
    assert saved.ignore_index == -100
    counted = arrays.labels != -100
    right = (arrays.logits.argmax(1) == arrays.labels)[counted]
    assert len(right) < counted.size
    assert audits["MbLS"].metrics["accuracy"] == pytest.approx(right.mean())


def test_without_the_shift_the_model_copies() -> None:
    copied, predicted = example("causal_lm").without_shift(epochs=5)
    assert copied > 0.9
    assert predicted < 0.2


# ---------------------------------------------------------------------- timm

#: The parts of timm that its script trains with, put together as that does; the script is not in the package.
SCRIPT = """
import argparse
import torch
from torch import nn
import timm
from timm.data import Mixup
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.task import ClassificationTask

parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--smoothing", type=float)
parser.add_argument("--mixup", type=float, default=0.0)
args = parser.parse_args()
torch.manual_seed(0)
mixing = Mixup(mixup_alpha=args.mixup, label_smoothing=args.smoothing, num_classes=10) if args.mixup else None
if mixing:
    train_loss_fn = SoftTargetCrossEntropy()
elif args.smoothing:
    train_loss_fn = LabelSmoothingCrossEntropy(smoothing=args.smoothing)
else:
    train_loss_fn = nn.CrossEntropyLoss()
train_loss_fn = train_loss_fn.to(device=torch.device("cpu"))
model = timm.create_model(args.model, num_classes=10)
task = ClassificationTask(model, train_loss_fn, verbose=False)
images, labels = torch.randn(6, 3, 32, 32), torch.randint(10, (6,))
if mixing:
    images, labels = mixing(images, labels)
result = task(images, labels)
result["loss"].backward()
assert all(p.grad is not None for p in model.parameters())
torch.save({"loss": result["loss"].detach(), "output": result["output"].detach(), "labels": labels}, "result.pt")
"""


@pytest.mark.parametrize("mixing", [[], ["--mixup", "0.4"]], ids=["labels", "mixed"])
def test_timm_script_trains_with_the_loss(
    mixing: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import timm.loss

    for name in ("LabelSmoothingCrossEntropy", "SoftTargetCrossEntropy"):
        monkeypatch.setattr(timm.loss, name, getattr(timm.loss, name))  # the example replaces them for good
    monkeypatch.setattr(sys, "argv", [])
    Path("script.py").write_text(SCRIPT, encoding="utf-8")
    smoothing = "0" if mixing else "0.1"
    arguments = ["mbls:margin=0.5", "script.py", "--model", "resnet10t", "--smoothing", smoothing, *mixing]
    example("timm_script").main(arguments)
    assert "training with MbLS(margin=0.5)" in capsys.readouterr().err
    result = torch.load("result.pt")
    expected = get("mbls", margin=0.5)(result["output"], result["labels"])
    torch.testing.assert_close(result["loss"], expected)
    assert not torch.allclose(expected, nn.functional.cross_entropy(result["output"], result["labels"]))


# ---------------------------------------------------------------------- ten seeds


def test_claim_of_the_examples_is_counted() -> None:
    run = {"ce_accuracy": 0.7, "ce_ece": 0.16, "ce_ece_low": 0.12, "ce_gap": 0.15, "accuracy": 0.71, "ece": 0.08}
    runs = {"own_loop": {0: run, 1: run | {"ece": 0.081}, 2: run | {"ce_gap": -0.15}, 3: run | {"ce_ece_low": 0.04}}}
    assert [row[-1] for row in seed_rows(runs)] == ["yes", "no", "no", "no"]
    assert range_rows(runs) == [
        ["own_loop", "70.0% to 70.0%", "16.0% to 16.0%", "71.0% to 71.0%", "8.0% to 8.1%", "1 of 4"]
    ]
    assert {path.stem for path in (ROOT / "examples").glob("*.py") if "def main(loss" in path.read_text()} == set(
        EXAMPLES
    )
