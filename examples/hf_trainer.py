"""A Calibrant loss in Hugging Face's Trainer, by way of `compute_loss_func`.

    pip install transformers accelerate
    python examples/hf_trainer.py

The Trainer does not divide what `compute_loss_func` returns by the steps it accumulates; it passes the number of labels
of the whole accumulated batch instead. So the loss is a sum here, divided by that number; a plain mean would make the
gradient larger with every accumulated step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Calibrant before transformers: where torchvision's compiled operators do not load, the sketch supplies them.
from calibrant import Predictions
from calibrant.losses import Loss, get
from calibrant.torchmetrics import ConfidenceSketch

# isort: split
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from transformers import EvalPrediction, Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

VIT = ViTConfig(
    image_size=8,
    patch_size=2,
    num_channels=1,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
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


def main(loss: Loss | None = None, **arguments: Any) -> dict[str, float]:
    """Train a small vision transformer on scikit-learn's digits.

    Args:
        loss: any Calibrant loss with ``reduction="sum"``; ACLS if None.
        **arguments: more for `TrainingArguments`.

    Returns:
        What the Trainer's evaluation says.
    """
    torch.manual_seed(0)
    images, digits = load_digits(return_X_y=True)
    pixels = torch.from_numpy(images / 16).float().view(-1, 1, 8, 8)
    samples = [{"pixel_values": x, "labels": int(y)} for x, y in zip(pixels, digits, strict=True)]
    train, test = train_test_split(samples, test_size=450, random_state=0)
    settings: dict[str, Any] = {
        "output_dir": "hf_trainer",
        "num_train_epochs": 10,
        "per_device_train_batch_size": 64,
        "per_device_eval_batch_size": 450,
        "learning_rate": 3e-3,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "save_strategy": "no",
        "report_to": "none",
    }
    trainer = Trainer(
        model=ViTForImageClassification(VIT),
        args=TrainingArguments(**(settings | arguments)),
        train_dataset=train,
        eval_dataset=test,
        compute_loss_func=for_trainer(loss or get("acls", margin=6.0, reduction="sum")),
        compute_metrics=calibration,
    )
    trainer.train()
    said = trainer.predict(test)
    Predictions.from_logits(said.predictions, said.label_ids).save("test.npz")  # calibrant audit test.npz
    return {name.removeprefix("test_"): value for name, value in said.metrics.items()}


if __name__ == "__main__":
    print(main())
