"""A Calibrant loss in a training loop of your own: the loss is the only line that changes.

    python examples/own_loop.py            # cross-entropy, then MbLS; some seconds

The two calls marked CRL, CaPE keep the memory of losses that have one; the other losses ignore them, so one loop
serves all.
"""

from __future__ import annotations

import torch
from comparison import compare
from noisy_digits import noisy_digits
from torch import nn

from calibrant import Audit, Predictions
from calibrant.losses import Loss, get


def train(loss: Loss, seed: int = 0, epochs: int = 30) -> Predictions:
    """Train a small network with a loss; what it says about the test images."""
    x, x_test, y, y_test = noisy_digits(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            logits = model(x[batch])
            optimiser.zero_grad()
            loss(logits, y[batch], ids=batch).backward()  # instead of nn.CrossEntropyLoss()(logits, y[batch])
            optimiser.step()
            loss.update(logits, y[batch], ids=batch)  # CRL, CaPE
        loss.end_epoch()  # CRL, CaPE
    with torch.no_grad():
        return Predictions.from_logits(model(x_test), y_test)


def main(loss: Loss | None = None, seed: int = 0, epochs: int = 30) -> dict[str, Audit]:
    """Train with cross-entropy and with another loss, save the predictions, audit both.

    Args:
        loss: any Calibrant loss; MbLS if None.
        seed: of the noise, the split and the network.
        epochs: passes over the training images.

    Returns:
        The two audits.
    """
    return compare(train, loss or get("mbls", margin=5.0), seed, epochs=epochs)


if __name__ == "__main__":
    main()
