"""A Calibrant loss in a training loop of your own: the loss is the only line that changes.

    python examples/own_loop.py            # ACLS on the handwritten digits of scikit-learn, a few seconds

The two calls marked CRL keep the memory of losses that have one; the other losses ignore them, so one loop serves all.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from calibrant import Predictions, audit
from calibrant.losses import Loss, get


def main(loss: Loss | None = None, epochs: int = 15) -> dict[str, float]:
    """Train, save the predictions of the test images, audit them.

    Args:
        loss: any Calibrant loss; ACLS if None.
        epochs: passes over the training images.

    Returns:
        Accuracy and ECE of the test images.
    """
    torch.manual_seed(0)
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = map(torch.from_numpy, train_test_split(images, digits, test_size=450, random_state=0))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    loss = loss or get("acls", margin=10.0)  # instead of nn.CrossEntropyLoss()
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            logits = model(x[batch].float() / 16)
            optimiser.zero_grad()
            loss(logits, y[batch], ids=batch).backward()
            optimiser.step()
            loss.update(logits, y[batch], ids=batch)  # CRL
        loss.end_epoch()  # CRL

    with torch.no_grad():
        predictions = Predictions.from_logits(model(x_test.float() / 16), y_test)
    predictions.save("test.npz")  # calibrant audit test.npz
    found = audit(predictions)
    print(found.verdict)
    return {"accuracy": found.metrics["accuracy"], "ece": found.metrics["ece_15"]}


if __name__ == "__main__":
    print(main())
