"""A Calibrant loss and its sketch in a LightningModule.

    pip install lightning
    python examples/lightning_module.py

The loss is a module, so its memory, if it has one (CRL), is in Lightning's checkpoints; the sketch is a torchmetrics
metric, so Lightning moves it to the device and its numbers are of all processes.
"""

from __future__ import annotations

from typing import Any

# Calibrant before Lightning: where torchvision's compiled operators do not load, the sketch supplies them.
from calibrant.losses import Loss, get
from calibrant.torchmetrics import ConfidenceSketch

# isort: split
import lightning
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """Any network that gives logits, with any Calibrant loss."""

    def __init__(self, network: nn.Module, loss: Loss):
        super().__init__()
        self.network, self.loss = network, loss
        self.sketch = ConfidenceSketch()

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> Tensor:
        """The loss, and its two terms in the log."""
        x, y, ids = batch
        logits = self.network(x)
        self.log_dict({f"train/{name}": term for name, term in self.loss.terms(logits.detach(), y, ids=ids).items()})
        loss: Tensor = self.loss(logits, y, ids=ids)
        self.loss.update(logits, y, ids=ids)  # for CRL; the other losses ignore it
        return loss

    def on_train_epoch_end(self) -> None:
        """For CRL too."""
        self.loss.end_epoch()

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> None:
        """Batches add up in the sketch; nothing is averaged over batches."""
        self.sketch.update(self.network(batch[0]), batch[1])

    def on_validation_epoch_end(self) -> None:
        """Calibration and ranking of the whole set."""
        values = self.sketch.compute()
        self.log_dict({f"val/{name}": values[name] for name in ("accuracy", "nll", "ece", "aurc")})
        self.sketch.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main(loss: Loss | None = None, epochs: int = 10, **trainer: Any) -> dict[str, float]:
    """Train on scikit-learn's digits.

    Args:
        loss: any Calibrant loss; MbLS if None.
        epochs: passes over the training images.
        **trainer: more for `lightning.Trainer`.

    Returns:
        What was logged last.
    """
    lightning.seed_everything(0, verbose=False)
    images, digits = load_digits(return_X_y=True)
    x, x_val, y, y_val = map(torch.from_numpy, train_test_split(images / 16, digits, test_size=450, random_state=0))
    train = TensorDataset(x.float(), y, torch.arange(len(y)))
    val = TensorDataset(x_val.float(), y_val, torch.arange(len(y_val)))
    module = Classifier(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), loss or get("mbls", margin=6.0))
    run = lightning.Trainer(max_epochs=epochs, logger=False, enable_checkpointing=False, **trainer)
    run.fit(module, DataLoader(train, 64, shuffle=True), DataLoader(val, 256))
    return {name: float(value) for name, value in run.callback_metrics.items()}


if __name__ == "__main__":
    print(main(accelerator="auto"))
