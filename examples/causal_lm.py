"""A Calibrant loss for a causal language model: the shift, the layout, the padding, and a file of tokens to audit.

    python examples/causal_lm.py                     # cross-entropy, then MbLS; half a minute
    python examples/causal_lm.py --without-shift     # what goes wrong without it: the model copies its input

A small decoder in plain PyTorch predicts the next character in the descriptions of data sets that scikit-learn ships,
line by line. The labels are the inputs, as Hugging Face's models take them; padding is labelled -100, which Calibrant's
losses and audits ignore.
"""

from __future__ import annotations

import argparse

import torch
from comparison import compare
from sklearn import datasets
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from calibrant import Audit, Predictions
from calibrant.losses import Loss, get

SOURCES = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")
LENGTH = 80
IGNORED = -100


def lines() -> list[str]:
    """The lines of the descriptions that have words in them."""
    text = "\n".join(getattr(datasets, f"load_{name}")().DESCR for name in SOURCES)
    return [line.strip()[:LENGTH] for line in text.splitlines() if sum(map(str.isalpha, line)) >= 10]


def encode(texts: list[str]) -> tuple[Tensor, Tensor]:
    """Characters as numbers and as labels, both ``[B, T]``; a line's padding is 0, and labelled -100."""
    alphabet = sorted({character for text in texts for character in text})
    number = {character: i for i, character in enumerate(alphabet)}
    inputs = torch.zeros(len(texts), LENGTH, dtype=torch.long)
    labels = torch.full_like(inputs, IGNORED)
    for row, text in enumerate(texts):
        inputs[row, : len(text)] = labels[row, : len(text)] = torch.tensor([number[character] for character in text])
    return inputs, labels


class Decoder(nn.Module):
    """A GPT in small: every position sees itself and what is before it. Logits ``[B, T, V]``."""

    def __init__(self, classes: int, width: int = 64, layers: int = 2):
        super().__init__()
        self.characters, self.positions = nn.Embedding(classes, width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits for the character after each position."""
        length = inputs.shape[1]
        hidden = self.characters(inputs) + self.positions(torch.arange(length, device=inputs.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=inputs.device)
        logits: Tensor = self.head(self.layers(hidden, mask=mask, is_causal=True))
        return logits


def shift(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """What is said at a position, beside the token at the next one: ``[B, T - 1, V]`` and ``[B, T - 1]``."""
    return logits[:, :-1], labels[:, 1:]


def fit(loss: Loss, inputs: Tensor, labels: Tensor, *, classes: int, epochs: int, shifted: bool = True) -> Decoder:
    """Train a decoder."""
    model = Decoder(classes)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).split(32):
            logits, target = model(inputs[batch]), labels[batch]
            if shifted:
                logits, target = shift(logits, target)
            optimiser.zero_grad()
            loss(logits.transpose(1, 2), target).backward()  # the losses have the classes in dimension 1
            optimiser.step()
    return model


def split(seed: int) -> tuple[list[Tensor], int]:
    """Inputs to train on and to test on, the labels of both, and the number of different characters."""
    inputs, labels = encode(lines())
    x, x_test, y, y_test = train_test_split(inputs.numpy(), labels.numpy(), random_state=seed)
    return [torch.from_numpy(array) for array in (x, x_test, y, y_test)], int(inputs.max()) + 1


def train(loss: Loss, seed: int = 0, epochs: int = 30) -> Predictions:
    """Train a decoder with a loss; what it says about the test lines."""
    (inputs, inputs_test, labels, labels_test), classes = split(seed)
    torch.manual_seed(seed)
    model = fit(loss, inputs, labels, classes=classes, epochs=epochs)
    with torch.no_grad():
        logits, target = shift(model(inputs_test), labels_test)
    # The tokens of a line are not independent: kept as [B, T, V], the audit's intervals draw lines.
    return Predictions.from_logits(logits, target, kind="tokens")


def main(loss: Loss | None = None, seed: int = 0, epochs: int = 30) -> dict[str, Audit]:
    """Train with cross-entropy and with another loss, save the predictions, audit both.

    Args:
        loss: any Calibrant loss; MbLS if None.
        seed: of the split and the network.
        epochs: passes over the training lines.

    Returns:
        The two audits.
    """
    return compare(train, loss or get("mbls", margin=5.0, strength=1.0), seed, epochs=epochs)


def without_shift(seed: int = 0, epochs: int = 30) -> tuple[float, float]:
    """Train without the shift: the accuracy on the test lines at repeating the input, and at the next character."""
    (inputs, inputs_test, labels, labels_test), classes = split(seed)
    torch.manual_seed(seed)
    model = fit(get("ce"), inputs, labels, classes=classes, epochs=epochs, shifted=False)
    with torch.no_grad():
        logits = model(inputs_test)
    copied, predicted = (
        float((said.argmax(-1) == target)[target != IGNORED].float().mean())
        for said, target in ((logits, labels_test), shift(logits, labels_test))
    )
    print(f"without the shift: accuracy {copied:.1%} at repeating its input, {predicted:.1%} at the next character")
    return copied, predicted


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Train a small causal language model with cross-entropy and with MbLS."
    )
    parser.add_argument("--without-shift", action="store_true", help="show what goes wrong without the shift")
    without_shift() if parser.parse_args().without_shift else main()
