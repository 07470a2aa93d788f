"""One page per method, from its registration and the head of its file: when to use it, what the lens sees, formula."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch

from calibrant import lens
from calibrant.cli.lens import sweep
from calibrant.losses import Loss, Method, describe, get, names
from calibrant.report import draw_lens
from docs_tools.rest import markdown, table

NOTE = "<!-- Written by ./dev docs; edit src/calibrant/losses instead. -->"
LOGITS, LABEL = [8.0, 4.0, 1.0, 0.0], 0
#: Captions of the pictures that are not of one sample alone with its class as label.
SEEN = {
    "crl": "A sample with logits 8, 4, 1, 0 that was right in one of four epochs, in a batch with one that was right "
    "in all of them and has the logits 5, 4, 1, 0: it is surer than its past allows.",
    "cape": "A sample with logits 8, 4, 1, 0, one of four predicted with this confidence, of which three were "
    "right: its confidence of 0.98 is drawn to 0.75.",
    "sat": "A sample with logits 8, 4, 1, 0 and the second class as label, after six steps at this prediction: the "
    "target has gone half of the way.",
    "deep_gamblers": "One sample of three classes, logits 8, 4, 1 and 0 for abstaining, its class the second.",
    "esd": "A sample with logits 8, 4, 1, 0, in a batch with two of the logits 5, 4, 1, 0, of which one is wrong: on "
    "the whole they are too sure.",
    "soft": "One sample, logits 8, 4, 1, 0, with a label of 0.7 for its class and 0.1 for each other.",
}
PLAIN = "One sample, logits 8, 4, 1, 0, its class the first{settings}."
#: Parameters other than the defaults, where those would show nothing: these logits are 8 apart.
SETTINGS = {"mbls": {"margin": 6.0}, "acls": {"margin": 6.0}}
BATCH = " The loss compares the samples of a batch; this is a batch of one."
CAPTION = "*{seen} Grey is the part of the label that stays, red is taken away, blue is added{command}.*"
COMMAND = "; `calibrant lens --losses {name}` draws it for your logits"

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

Every loss is called as `loss(logits, target)` and also takes {common}. The [guide to the losses](../losses.md) says how
to choose and use one, [Add a method](../add_method.md) how to write one; [another page](table2.md) holds ACLS Table 2
against the gradient. Each page carries the head of the method's own file, so the formula is the one beside the code.
N is the number of samples, C or K the number of classes, z the logits, p their softmax, y the label and yhat the
predicted class. Keys such as [ACLS] stand in [references.bib](../../references.bib).

{table}
"""


def method_page(method: Method) -> str:
    """The page of a method."""
    settings = "".join(f", {key} {value:g}" for key, value in SETTINGS.get(method.name, {}).items())
    seen = SEEN.get(method.name) or PLAIN.format(settings=settings) + ("" if method.per_sample else BATCH)
    command = COMMAND.format(name=method.name) if method.loss.least_samples == 1 else ""  # it takes one sample
    return PAGE.format(
        note=NOTE,
        title=method.title,
        name=method.name,
        loss=method.loss.__name__,
        summary=method.summary,
        source=f"[{method.paper}], {method.equation}; keys stand in [references.bib](../../references.bib).",
        use=method.use,
        avoid=method.avoid,
        caption=CAPTION.format(seen=seen, command=command),
        body=body(method),
    )


def body(method: Method) -> str:
    """A method's facts, its parameters, the head of its file and its example."""
    facts = [
        f"- in short: {method.summary}",
        f'- by name: `get("{method.name}")`',
        f"- source: [{method.paper}], {method.equation}",
        f"- cost: {method.cost}",
        f"- soft targets: {'yes' if method.soft else 'no'}",
        f"- per sample: {'yes' if method.per_sample else 'no'}",
    ]
    rows = [[f"`{name}`", f"`{default!r}`", method.hyper[name]] for name, default in method.defaults().items()]
    parameters = table(["parameter", "default", "direction"], rows) if rows else "No parameters of its own."
    module = inspect.getmodule(method.loss)
    head = markdown((module and module.__doc__) or "")
    return "\n\n".join(["\n".join(facts), parameters, head, f"```python\n{example(method.loss)}\n```"])


def example(loss: type[Loss]) -> str:
    """The code of the class docstring's last section, ``Example:``."""
    _, _, code = inspect.cleandoc(loss.__doc__ or "").partition("\nExample:\n")
    if not code:
        raise ValueError(f"{loss.__name__} has no example in its docstring")
    return inspect.cleandoc("\n" + code)


def index_page() -> str:
    """The list of the pages."""
    methods = [describe(name) for name in names()]
    rows = [[f"[{method.title}]({method.name}.md)", f"`{method.name}`", method.use] for method in methods]
    *first, last = (f"`{name}`" for name in inspect.signature(Loss).parameters)
    return INDEX.format(
        note=NOTE, common=f"{', '.join(first)} and {last}", table=table(["method", "name", "use it when"], rows)
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
    if name == "cape":
        ids = torch.zeros(1, dtype=torch.int64)
        loss = get(name, bins=1)
        loss.update(z.repeat(4, 1), torch.tensor([LABEL, LABEL, LABEL, 1 - LABEL]), ids=torch.arange(4))
        loss.end_epoch()
    if name == "esd":
        z = torch.cat([z, z.new_tensor([[5.0, 4.0, 1.0, 0.0]]).expand(2, -1)])
        y = torch.tensor([LABEL, LABEL, 1 - LABEL])
    if name == "deep_gamblers":
        y = torch.tensor([1])
    if name == "sat":
        loss, y, ids = get(name, start=0), torch.tensor([1]), torch.zeros(1, dtype=torch.int64)
        for _ in range(5):  # the lens shows the sixth
            loss.update(z, y, ids=ids)
    seen = lens(loss, z, y, ids=ids)
    draw_lens(
        path,
        logits=LOGITS,
        label=LABEL if name == "soft" else int(y[0]),
        probs=seen.probs[0].numpy(),
        target=seen.target[0].numpy(),
        effective={f"{name}: effective label $q'$": seen.effective[0].numpy()},
        sweep=None if name in SEEN else sweep({name: loss}, LOGITS, LABEL),
    )
