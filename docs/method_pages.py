"""One page per method: when to use it, what the lens sees, and the section of ``methods.md`` that tells its formula."""

from __future__ import annotations

import tomllib
from pathlib import Path

import torch

from calibrant._lens import lens
from calibrant.cli.lens import sweep
from calibrant.losses import Method, describe, get, names
from calibrant.report import draw_lens
from docs.rest import table

WHEN = Path(__file__).with_name("when.toml")
NOTE = "<!-- Written by ./dev docs; edit docs/when.toml and {source} instead. -->"
LOGITS, LABEL = [8.0, 4.0, 1.0, 0.0], 0
#: Captions of the pictures that are not of one sample alone with its class as label.
SEEN = {
    "crl": "A sample with logits 8, 4, 1, 0 that was right in one of four epochs, in a batch with one that was right "
    "in all of them and has the logits 5, 4, 1, 0: it is surer than its past allows.",
    "soft": "One sample, logits 8, 4, 1, 0, with a label of 0.7 for its class and 0.1 for each other.",
}
PLAIN = "One sample, logits 8, 4, 1, 0, its class the first{settings}."
#: Parameters other than the defaults, where those would show nothing: these logits are 8 apart.
SETTINGS = {"mbls": {"margin": 6.0}, "acls": {"margin": 6.0}}
BATCH = " The loss compares the samples of a batch; this is a batch of one."
CAPTION = (
    "*{seen} Grey is the part of the label that stays, red is taken away, blue is added; `calibrant lens --losses "
    "{name}` draws it for your logits.*"
)

PAGE = """\
{note}

# {title}

`get("{name}")` or `{loss}`: {summary}. {source}

- **Use it when:** {use}
- **Not when:** {avoid}

## What it trains towards

![The label that {loss} trains towards]({name}.svg)

{caption}

## Formula, parameters, variants

{body}
"""

INDEX = """\
{note}

# Methods

One page each; [all formulas on one page](../methods.md), [how to choose and use them](../guide.md),
[how to add one](../add_method.md).

{table}
"""


def when() -> dict[str, dict[str, str]]:
    """The hand-written words on each method."""
    with WHEN.open("rb") as file:
        found = tomllib.load(file)
    if list(found) != list(names()):
        raise ValueError(
            f"{WHEN.name} must hold the methods {', '.join(names())}, in this order, got {', '.join(found)}"
        )
    return found


def method_page(method: Method, section: str) -> str:
    """The page of a method.

    Args:
        method: its facts.
        section: its section of ``methods.md``, without the heading.
    """
    words = when()[method.name]
    settings = "".join(f", {key} {value:g}" for key, value in SETTINGS.get(method.name, {}).items())
    seen = SEEN.get(method.name) or PLAIN.format(settings=settings) + ("" if method.per_sample else BATCH)
    return PAGE.format(
        note=NOTE.format(source="src/calibrant/losses"),
        title=words["title"],
        name=method.name,
        loss=method.loss.__name__,
        summary=method.summary,
        source=f"[{method.paper}], {method.equation}; keys stand in [references.bib](../../references.bib).",
        use=words["use"],
        avoid=words["avoid"],
        caption=CAPTION.format(seen=seen, name=method.name),
        body=section.strip(),
    )


def index_page() -> str:
    """The list of the pages."""
    words = when()
    rows = [[f"[{words[name]['title']}]({name}.md)", f"`{name}`", words[name]["use"]] for name in names()]
    return INDEX.format(
        note=NOTE.format(source="src/calibrant/losses"), table=table(["method", "name", "use it when"], rows)
    )


def draw(name: str, path: Path) -> None:
    """The picture of a method."""
    loss = get(name, **SETTINGS.get(name, {}))
    z, y = torch.tensor([LOGITS], dtype=torch.float64), torch.tensor([LABEL])
    ids = None
    if name == "soft":
        y = torch.full((1, 4), 0.1, dtype=torch.float64)
        y[0, LABEL] = 0.7
    if name == "crl":
        z, y, ids = torch.cat([z, z.new_tensor([[5.0, 4.0, 1.0, 0.0]])]), y.repeat(2), torch.arange(2)
        for right in (1, 0, 0, 0):
            wrong = z[:1].flip(1) if not right else z[:1]
            loss.update(torch.cat([wrong, z[1:]]), y, ids=ids)
            loss.end_epoch()
    seen = lens(loss, z, y, ids=ids)
    draw_lens(
        path,
        logits=LOGITS,
        label=LABEL,
        probs=seen.probs[0].numpy(),
        target=seen.target[0].numpy(),
        effective={f"{name}: effective label $q'$": seen.effective[0].numpy()},
        sweep=None if name in SEEN else sweep({name: loss}, LOGITS, LABEL),
    )


def facts() -> list[Method]:
    """All methods, in the order of the registry."""
    return [describe(name) for name in names()]
