"""ACLS Table 2 against autograd: what the printed smoothing functions leave out, and how much that is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant._lens import lens
from calibrant.cli.common import parse_losses
from calibrant.losses import Loss, describe, names
from docs.rest import table

SEED, SAMPLES, CLASSES, EPOCHS = 0, 64, 10, 20
#: Parameters besides the variant; a method may have several rows of each variant.
SETTINGS = {"mbls": ["margin=6"], "acls": ["margin=6", "margin=6:indicator=ranking"]}


def comparison() -> str:
    """The Markdown table, one row for each loss and variant with a closed form of f and C."""
    logits, labels, counts = data()
    head = ["loss", "closed form", "Table 2, largest", "where right", "Table 2, mean", "f C at the predicted class"]
    rows = []
    for specification in specifications():
        (loss,) = parse_losses(specification).values()
        rows.append([f"`{specification}`", *_differences(loss, logits, labels, counts)])
    return table(head, rows)


def data() -> tuple[Tensor, Tensor, Tensor]:
    """Logits ``[64, 10]``, labels of which about 80% are predicted, and counts of past right predictions."""
    generator = torch.Generator().manual_seed(SEED)
    logits = 4 * torch.randn(SAMPLES, CLASSES, generator=generator, dtype=torch.float64)
    wrong = torch.rand(SAMPLES, generator=generator, dtype=torch.float64) >= 0.8
    step = torch.randint(1, CLASSES, (SAMPLES,), generator=generator)
    labels = (logits.argmax(1) + wrong * step) % CLASSES
    return logits, labels, torch.randint(EPOCHS + 1, (SAMPLES,), generator=generator)


def specifications() -> list[str]:
    """Every loss with a closed form, in each of its variants, in the notation of the command line."""
    found = []
    for name in names():
        method = describe(name)
        if not hasattr(method.loss, "lens_form"):
            continue
        variants = ["variant=released", "variant=paper"] if "variant" in method.defaults() else [""]
        if "gradient" in method.defaults():
            variants.append("variant=paper:gradient=eq12")
        for setting in SETTINGS.get(name, [""]):
            found += [":".join(filter(None, (name, setting, variant))) for variant in variants]
    return found


def _differences(loss: Any, logits: Tensor, labels: Tensor, counts: Tensor) -> list[str]:
    """The numbers of a row."""
    given, predicted = _remember(loss, counts), logits.argmax(1)
    exact = lens(loss, logits, labels, **given).smoothing
    closed = loss.lens_form(logits, labels, **given)
    cells = [difference((exact - closed.f * closed.indicator).abs().max())]
    if hasattr(loss, "table2"):
        printed = loss.table2(logits, labels, **given)
        error = (exact - printed.f * printed.indicator).abs()
        cells += [difference(error.max()), difference(error[predicted == labels].max()), difference(error.mean())]
    else:
        cells += ["-"] * 3
    lowered = exact.gather(1, predicted.unsqueeze(1))
    return [*cells, f"{number(lowered.min())} to {number(lowered.max())}"]


def _remember(loss: Loss, counts: Tensor) -> dict[str, Tensor]:
    """Give a loss that ranks samples a past, and return the ids it is called with."""
    history: Any = getattr(loss, "history", None)
    if history is None:
        return {}
    history.counts = counts
    history.epochs.fill_(EPOCHS)
    return {"ids": torch.arange(SAMPLES)}


def number(value: Tensor) -> str:
    """Three significant digits, more than any machine rounds away."""
    return f"{float(value) + 0.0:.3g}"  # + 0.0 turns -0.0 into 0


def difference(value: Tensor) -> str:
    """A number not below 0; whether it is 0 or rounding noise depends on the machine."""
    return "< 1e-12" if float(value) < 1e-12 else number(value)
