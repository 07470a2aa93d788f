"""A Calibrant loss in a training loop of your own: the loss is the only line that changes.

    python examples/own_loop.py            # cross-entropy, then ACLS; half a minute

The task is one on which cross-entropy ends overconfident: scikit-learn's handwritten digits under heavy noise, with 600
of them to train on. The two calls marked CRL keep the memory of losses that have one; the other losses ignore them, so
one loop serves all.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from calibrant import Audit, Predictions, audit
from calibrant.losses import Loss, get


def noisy_digits(seed: int) -> list[Tensor]:
    """Images to train on and to test on, and the labels of both."""
    images, digits = load_digits(return_X_y=True)
    pixels = torch.from_numpy(images).float() / 16
    pixels += 0.4 * torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed))
    x, x_test, y, y_test = train_test_split(pixels.numpy(), digits, train_size=600, random_state=seed, stratify=digits)
    return [torch.from_numpy(array) for array in (x, x_test, y, y_test)]


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
            loss.update(logits, y[batch], ids=batch)  # CRL
        loss.end_epoch()  # CRL
    with torch.no_grad():
        return Predictions.from_logits(model(x_test), y_test)


def main(loss: Loss | None = None, seed: int = 0, epochs: int = 30) -> dict[str, Audit]:
    """Train with cross-entropy and with another loss, save the predictions, audit both.

    Args:
        loss: any Calibrant loss; ACLS if None.
        seed: of the noise, the split and the network.
        epochs: passes over the training images.

    Returns:
        The two audits.
    """
    loss = loss or get("acls", margin=4.0, lambda1=0.02, lambda2=0.02)
    audits = {}
    for name, each in (("cross-entropy", get("ce")), (type(loss).__name__, loss)):
        predictions = train(each, seed, epochs)
        predictions.save(f"{each.method.name}.npz")  # calibrant audit acls.npz
        result = audits[name] = audit(predictions)
        accuracy, ece, (low, high) = result.metrics["accuracy"], result.metrics["ece"], result.intervals["ece"]
        print(f"{name}: accuracy {accuracy:.1%}, ECE {ece:.1%} [{low:.1%}, {high:.1%}]")
    for name, result in audits.items():
        print(f"{name}: {result.verdict}")
    return audits


if __name__ == "__main__":
    main()
