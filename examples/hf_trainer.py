"""A Calibrant loss in Hugging Face's Trainer, by way of `compute_loss_func`.

    pip install transformers accelerate
    python examples/hf_trainer.py            # cross-entropy, then MbLS; half a minute

The Trainer does not divide what `compute_loss_func` returns by the steps it accumulates; it passes the number of labels
of the whole accumulated batch instead. So the loss is a sum here, divided by that number; a plain mean would make the
gradient larger with every accumulated step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Calibrant before transformers: where torchvision's compiled operators do not load, the sketch supplies them.
from calibrant import Audit, Predictions
from calibrant.losses import Loss, get
from calibrant.torchmetrics import ConfidenceSketch

# isort: split
import torch
from comparison import compare
from noisy_digits import noisy_digits
from torch import Tensor
from transformers import EvalPrediction, Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

VIT = ViTConfig(
    image_size=8,
    patch_size=4,
    num_channels=1,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    num_labels=10,
)


def for_trainer(loss: Loss) -> Callable[..., Tensor]:
    """A Calibrant loss with ``reduction="sum"`` as the Trainer's ``compute_loss_func``."""

    def compute(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        count = (labels != loss.ignore_index).sum() if num_items_in_batch is None else num_items_in_batch
        value: Tensor = loss(outputs["logits"], labels) / count
        return value

    return compute


def calibration(seen: EvalPrediction) -> dict[str, float]:
    """Accuracy, ECE and AURC, for ``compute_metrics``."""
    sketch = ConfidenceSketch()
    sketch.update(torch.as_tensor(seen.predictions), torch.as_tensor(seen.label_ids))
    values = sketch.compute()
    return {name: float(values[name]) for name in ("accuracy", "ece", "aurc")}


def train(loss: Loss, seed: int = 0, **arguments: Any) -> Predictions:
    """Train a small vision transformer with a loss; what it says about the test images.

    Args:
        loss: any Calibrant loss with ``reduction="sum"``.
        seed: of the noise, the split and the network.
        **arguments: more for `TrainingArguments`.
    """
    x, x_test, y, y_test = noisy_digits(seed)
    torch.manual_seed(seed)
    training, test = (
        [{"pixel_values": image.view(1, 8, 8), "labels": int(label)} for image, label in zip(*data, strict=True)]
        for data in ((x, y), (x_test, y_test))
    )
    settings: dict[str, Any] = {
        "output_dir": "hf_trainer",
        "num_train_epochs": 30,
        "per_device_train_batch_size": 64,
        "per_device_eval_batch_size": 512,
        "learning_rate": 3e-3,
        "seed": seed,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
    }
    trainer = Trainer(
        model=ViTForImageClassification(VIT),
        args=TrainingArguments(**(settings | arguments)),
        train_dataset=training,
        eval_dataset=test,
        compute_loss_func=for_trainer(loss),
        compute_metrics=calibration,
    )
    trainer.train()
    output = trainer.predict(test)  # output.metrics has what `calibration` computes
    return Predictions.from_logits(output.predictions, output.label_ids)


def main(loss: Loss | None = None, seed: int = 0, **arguments: Any) -> dict[str, Audit]:
    """Train with cross-entropy and with another loss, save the predictions, audit both.

    Args:
        loss: any Calibrant loss with ``reduction="sum"``; MbLS if None.
        seed: of the noise, the split and the network.
        **arguments: more for `TrainingArguments`.

    Returns:
        The two audits.
    """
    return compare(train, loss or get("mbls", margin=3.0, strength=0.3, reduction="sum"), seed, **arguments)


if __name__ == "__main__":
    main()
