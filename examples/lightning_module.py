"""A Calibrant loss and its sketch in a LightningModule.

    pip install lightning
    python examples/lightning_module.py            # cross-entropy, then MbLS; half a minute

The loss is a module, so its memory, if it has one (CRL, CaPE), is in Lightning's checkpoints; the sketch is a
torchmetrics metric, so Lightning moves it to the device and its numbers are of all processes.
"""

from __future__ import annotations

from typing import Any

# Calibrant before Lightning: where torchvision's compiled operators do not load, the sketch supplies them.
from calibrant import Audit, Predictions
from calibrant.losses import Loss, get
from calibrant.torchmetrics import ConfidenceSketch

# isort: split
import lightning
import torch
from comparison import compare
from noisy_digits import noisy_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

Batch = tuple[Tensor, Tensor, Tensor]


class Classifier(lightning.LightningModule):
    """Any network that gives logits, with any Calibrant loss."""

    def __init__(self, network: nn.Module, loss: Loss):
        super().__init__()
        self.network, self.loss = network, loss
        self.sketch = ConfidenceSketch()

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """The loss, and its two terms in the log."""
        x, y, ids = batch
        logits = self.network(x)
        self.log_dict({f"train/{name}": term for name, term in self.loss.terms(logits.detach(), y, ids=ids).items()})
        loss: Tensor = self.loss(logits, y, ids=ids)
        self.loss.update(logits, y, ids=ids)  # for CRL and CaPE; the other losses ignore it
        return loss

    def on_train_epoch_end(self) -> None:
        """For CRL and CaPE too."""
        self.loss.end_epoch()

    def validation_step(self, batch: Batch, _: int) -> None:
        """Batches add up in the sketch; nothing is averaged over batches."""
        self.sketch.update(self.network(batch[0]), batch[1])

    def on_validation_epoch_end(self) -> None:
        """Calibration and ranking of the whole set."""
        values = self.sketch.compute()
        self.log_dict({f"val/{name}": values[name] for name in ("accuracy", "nll", "ece", "aurc")})
        self.sketch.reset()

    def predict_step(self, batch: Batch, _: int) -> Tensor:
        """Logits, for a predictions file."""
        logits: Tensor = self.network(batch[0])
        return logits

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def train(loss: Loss, seed: int = 0, epochs: int = 30, **trainer: Any) -> Predictions:
    """Train a small network with a loss; what it says about the test images.

    Args:
        loss: any Calibrant loss.
        seed: of the noise, the split and the network.
        epochs: passes over the training images.
        **trainer: more for `lightning.Trainer`.
    """
    x, x_test, y, y_test = noisy_digits(seed)
    lightning.seed_everything(seed, verbose=False)
    training = DataLoader(TensorDataset(x, y, torch.arange(len(y))), 64, shuffle=True)
    # Nothing is selected on the test images, so they can be watched during training as well.
    test = DataLoader(TensorDataset(x_test, y_test, torch.arange(len(y_test))), 256)
    module = Classifier(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), loss)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    run = lightning.Trainer(max_epochs=epochs, enable_model_summary=False, **(quiet | trainer))
    run.fit(module, training, test)
    logits = run.predict(module, test)
    return Predictions.from_logits(torch.cat(logits), y_test)


def main(loss: Loss | None = None, seed: int = 0, **options: Any) -> dict[str, Audit]:
    """Train with cross-entropy and with another loss, save the predictions, audit both.

    Args:
        loss: any Calibrant loss; MbLS if None.
        seed: of the noise, the split and the network.
        **options: more for `train`.

    Returns:
        The two audits.
    """
    return compare(train, loss or get("mbls", margin=5.0), seed, **options)


if __name__ == "__main__":
    main(accelerator="auto")
