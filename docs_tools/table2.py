"""ACLS Table 2 against autograd: what the printed smoothing functions leave out, and how much that is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant import lens
from calibrant.cli.options import parse_losses
from calibrant.losses import Loss, describe, names
from docs_tools.rest import table
from tests.reference import smoothing

SEED, SAMPLES, CLASSES, EPOCHS = 0, 64, 10, 20
#: Parameters besides the variant; a method may have several rows of each variant.
SETTINGS = {"mbls": ["margin=6"], "acls": ["margin=6", "margin=6:indicator=ranking"]}


PAGE = """\
<!-- Written by ./dev docs; edit docs_tools/table2.py instead. -->

# ACLS Table 2 against autograd

ACLS Table 2 writes each method as a smoothing function f and an indicator C, some of them by approximation. Here they
are held against the gradient itself (`calibrant.lens`), for each loss whose f and C have a closed form
(`tests/reference/smoothing.py`).

Data: {samples} samples of {classes} classes in float64, logits 4 times standard normal, seed {seed}. {right} labels are
the predicted class, the others are another class. Losses that rank samples have seen {epochs} epochs, with a random
count of right predictions for each sample. `./dev docs` computes and prints this table.

{table}

- Closed form: the largest absolute difference of autograd and the exact f C.
- Table 2: the largest and the mean absolute difference of autograd and f C as printed; "where right" is the largest one
  over the samples whose prediction is the label.
- f C at the predicted class: its range by autograd, that is, by how much the label of that class is lowered.

LS and MbLS have no second form: for LS Table 2 is exact where the prediction is right, and f turns negative where it is
wrong; for MbLS it is exact with `variant=paper` and leaves out the predicted class with `variant=released`. For FLSD
Table 2 prints constants without values; the last column shows how far from constant f is.

What the printed forms leave out: for MDCA the signs of the batch; for CPC the sign of one term, and predictions that
are wrong; for CRL that a sample stands in several pairs; for ACLS the factor 2 of the square and, with `variant=paper`,
what flows through the maximum and the minimum (`gradient=eq12` is the printed form).
"""


def page() -> str:
    """The page about Table 2."""
    logits, labels, _ = data()
    right = int((logits.argmax(1) == labels).sum())
    return PAGE.format(samples=SAMPLES, classes=CLASSES, seed=SEED, epochs=EPOCHS, right=right, table=comparison())


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
    rows = []
    for name in names():
        method = describe(name)
        if method.loss not in smoothing.EXACT:
            continue
        variants = ["variant=released", "variant=paper"] if "variant" in method.defaults() else [""]
        if "gradient" in method.defaults():
            variants.append("variant=paper:gradient=eq12")
        for setting in SETTINGS.get(name, [""]):
            rows += [":".join(filter(None, (name, setting, variant))) for variant in variants]
    return rows


def _differences(loss: Any, logits: Tensor, labels: Tensor, counts: Tensor) -> list[str]:
    """The numbers of a row."""
    ids, predicted = _remember(loss, counts), logits.argmax(1)
    exact = lens(loss, logits, labels, **ids).smoothing
    closed = smoothing.exact(loss, logits, labels, **ids)
    cells = [difference((exact - closed.f * closed.indicator).abs().max())]
    if type(loss) in smoothing.PRINTED:
        printed = smoothing.printed(loss, logits, labels, **ids)
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
