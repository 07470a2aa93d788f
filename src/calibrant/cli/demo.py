"""``calibrant demo``: see it work in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from calibrant.audit import audit
from calibrant.cli.audit import print_audit
from calibrant.cli.common import Json, Quiet, parse_losses, print_json, remark
from calibrant.cli.lens import activity_table, draw, look, print_activity, print_lens
from calibrant.lens import activity
from calibrant.predictions import Predictions

LOSSES = "ls,flsd,mbls:margin=6,mdca,cpc,acls:margin=6"
LOGITS, LABEL = [8.0, 4.0, 1.0, 0.0], 0


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the page, figures and data.")] = Path(
        "calibrant-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the synthetic predictions.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Audit an overconfident classifier and see it through the lens; write two pages to open."""
    from calibrant.report import Section, write_page  # here, because it brings matplotlib along

    losses = parse_losses(LOSSES)
    output.mkdir(parents=True, exist_ok=True)
    seen = look(losses, LOGITS, LABEL)
    for suffix in ("svg", "png"):
        draw(output / f"lens.{suffix}", losses, seen, LOGITS, LABEL)
    data = overconfident_predictions(seed)
    data.save(output / "predictions.npz")
    batches = [(torch.from_numpy(b.logits), torch.from_numpy(b.labels)) for b in data.batches(256)]
    found = activity(parse_losses(f"ce,{LOSSES}"), batches)
    right = float((data.logits.argmax(1) == data.labels).mean())
    sure = float(torch.from_numpy(data.logits).softmax(1).amax(1).mean())
    write_page(
        output / "index.html",
        title="What calibration losses really train towards",
        intro="Every loss pulls the prediction p towards some label q'. Read off its gradient, q' = p - dL/dz.",
        sections=[
            Section(
                "One confident, correct prediction",
                "Grey is the part of the given label that stays; red is taken away, blue is added.",
                figure=output / "lens.svg",
            ),
            Section(
                "A synthetic overconfident classifier",
                f"{len(data)} samples, 10 classes, seed {seed}: right on {right:.1%}, mean confidence {sure:.1%}. "
                "For what share of the samples does each loss move the label, by how much at the predicted class, and "
                "how often would a gradient step of size 1 on the logits change the predicted class? The baseline is "
                "plain cross-entropy (ce), which corrects wrong predictions and touches no right one.",
                table=activity_table(found),
            ),
        ],
    )
    audited = audit({"predictions.npz": data}, seed=seed, reproduce=f"calibrant audit {output / 'predictions.npz'}")
    report, page = output / "report.html", output / "index.html"
    audited.to_html(report)
    if as_json:
        pages = {"report": str(report), "page": str(page)}
        print_json(pages | {"audit": audited.document, "activity": {name: vars(a) for name, a in found.items()}})
    elif not quiet:
        print_audit(audited)
        print()
        print_lens(seen, LOGITS, LABEL)
        print()
        print_activity(found, 1.0)
        print(f"\nright on {right:.1%} of {len(data)} synthetic samples, mean confidence {sure:.1%}")
    remark(f"open {report} and {page}", quiet)


def overconfident_predictions(seed: int, samples: int = 5000, classes: int = 10) -> Predictions:
    """Logits that were true log-probabilities before they were doubled: overconfident by construction."""
    generator = torch.Generator().manual_seed(seed)
    honest = 3.0 * torch.randn(samples, classes, generator=generator)
    labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
    return Predictions.from_logits((2.0 * honest).numpy(), labels.numpy())
