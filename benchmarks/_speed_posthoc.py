"""The part of docs/speed.md about the post-hoc methods: from the numbers of ./dev bench posthoc."""

from __future__ import annotations

from typing import Any

from benchmarks._markdown import table
from benchmarks._speed_metrics import busy, machine

POSTHOC = """\
## Posthoc

Temperature scaling, fitted on overconfident float32 logits, whose labels were drawn from the softmax of logits half as
large; and LogitNorm's search over p from 1 to 10.

- **s** is the time from the logits to the temperature, softmax included where a library takes probabilities.
  Calibrant's is the median over {rounds} interleaved rounds. Peers run in an environment of their own, on the same data
  and with as many threads, with their defaults, up to five times, slow ones once; where none was run, they are missing.
- **Passes** are evaluations of the loss or its derivatives over all logits; with LBFGS, which torch-uncertainty uses
  too, a backward pass belongs to each.
- **NLL**, **above the least** and **|dNLL/dT|** are computed at the temperature that was returned, by one plain float64
  reference that shares no code with the package. The least NLL is at the zero of dNLL/dT, which that reference bisects.
- LBFGS, lr 0.01, 50 steps is the widely copied script: T starts at 1.5, `torch.optim.LBFGS` runs without a line search.
- The floor is one chunked pass of `max` and `logsumexp`; softmax is `torch.softmax` of the whole array; softmax in
  chunks takes about a million numbers at a time and discards its output. Numbers in bold exceed LogitNorm's target of
  {limit:g} softmax passes (from {classes} classes on).

Run on: {machine}.
Repeat with `./dev bench posthoc`; other machines give other ratios.
"""


def posthoc_part(results: dict[str, Any]) -> str:
    """Everything about the post-hoc methods."""
    targets = results["targets"]
    head = POSTHOC.format(
        rounds=results["settings"]["rounds"],
        limit=targets["LogitNorm by softmax"],
        classes=targets["from classes"],
        machine=machine(results["environment"]),
    )
    counts = "; ".join(f"{what}: {count}" for what, count in results["summary"].items())
    return "\n".join([head, *(_section(data, targets) for data in results["data"]), f"In all: {counts}.\n"])


def _section(data: dict[str, Any], targets: dict[str, Any]) -> str:
    facts = "; ".join(f"{name}: {value:g}" for name, value in data["facts"].items())
    title, facts = (text[0].upper() + text[1:] for text in (data["title"], facts))
    least = data["least"]
    about = f"NLL {data['nll at 1']:.6f} at T = 1; least at T = {least['temperature']:.10g}: {least['nll']:.6f}."
    parts = [f"### {title}", "", f"{facts}. {about}", *busy(data), ""]
    return "\n".join([*parts, _fits(data["fits"]), _times(data, targets)])


def _fits(fits: list[dict[str, Any]]) -> str:
    ours, lines = fits[0], []
    for fit in fits:
        name = f"{fit['peer']} {fit.get('version') or ''}".strip()
        if "temperature" not in fit:
            lines.append([name, fit.get("takes") or "", fit["failure"].replace("|", "/"), *[""] * 6])
            continue
        passes = "" if fit["passes"] is None else str(fit["passes"])
        times = [f"{fit['seconds']:.3g}", f"{fit['seconds'] / ours['seconds']:.3g}", passes]
        reached = [f"{fit['temperature']:.6f}", f"{fit['nll']:.6f}", f"{fit['excess']:.0e}", f"{fit['gradient']:.0e}"]
        lines.append([name, fit["takes"], *times, *reached])
    columns = ("temperature", "from", "s", "by Calibrant's", "passes", "T", "NLL", "above the least", "\\|dNLL/dT\\|")
    return table(columns, lines)


def _times(data: dict[str, Any], targets: dict[str, Any]) -> str:
    names = list(data["rows"][0]["ratios"])
    lines = []
    for row in data["rows"]:
        cells = []
        for other in names:
            median = row["ratios"][other]["median"]
            over = row["verdict"] not in ("ok", "-") and other != "floor" and median > targets["LogitNorm by softmax"]
            cells.append(f"**{median:.3g}**" if over else f"{median:.3g}")
        name = "temperature" if row["name"] == "Calibrant" else row["name"]
        lines.append([name, f"{1e3 * row['seconds']:.3g}", *cells])
    return table(("", "ms", *(f"by {other}" for other in names)), lines)
