"""The part of docs/speed.md about training input: from the numbers of ./dev bench data."""

from __future__ import annotations

from typing import Any

from benchmarks._harness import Ratio
from benchmarks._markdown import table
from benchmarks._speed_metrics import busy, machine

DATA = """\
## Data

Training input: {images} JPEGs ({title}) are read, decoded and augmented (random resized crop to {size} x {size}, flip,
normalisation) into float batches of 64.

- **plain** is Calibrant's pipeline without boxes; **object-aware** adds boxes, objectness and adaptive targets. Its
  target is at most {limit:g} x plain (ALS's own run took 1.54 x).
- **mask** is the way of ALS: a mask goes through the same crop, and its pixels are counted.
- **v2** is torchvision.transforms.v2 as in its documentation, decoding with PIL. Plain should be no slower.

One process, one thread; medians over {rounds} interleaved rounds of the ratio within a round. Run on: {machine}.
Repeat with `./dev bench data`.
"""


def data_part(results: dict[str, Any]) -> str:
    """Everything about training input."""
    head = DATA.format(
        images=results["images"],
        title=results["title"],
        size=results["size"],
        limit=results["limit"],
        rounds=results["rounds"],
        machine=machine(results["environment"]),
    )
    rows = [
        [
            row["name"],
            f"{row['images per second']:.0f}",
            *(str(Ratio(**row["ratios"][other])) for other in ("plain", "v2 on tensors")),
        ]
        for row in results["rows"]
    ]
    parts = [head, *busy(results), table(["input", "images/s", "time by plain", "time by v2 on tensors"], rows)]
    if "workers" in results:
        rates = results["workers"]["images per second"]
        parts.append(f"\nWhole epochs through a DataLoader with {results['workers']['number']} workers:\n")
        parts.append(
            table(
                ["input", "images/s", "time by plain"],
                [[name, f"{rate:.0f}", f"{rates['plain'] / rate:.3g}"] for name, rate in rates.items()],
            )
        )
    return "\n".join([*parts, ""])
