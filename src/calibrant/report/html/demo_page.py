"""The page of the demonstration: before, repaired, deployed, and how to do the same with a file of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calibrant.report import html
from calibrant.report.document import Part
from calibrant.report.html import charts
from calibrant.report.text import escape, percent


def write_demonstration(path: str | Path, document: Part) -> None:
    """Write the page of the demonstration; it draws the document of `calibrant.experiments.run_demo`."""
    sections = [section(document) for section in (_cards, _reliability, _pictures, _own_file, _facts)]
    html.write_report(
        path, [*sections, html.reproduction(document["reproduce"])], title=document["title"],
        kind="Calibrant demonstration", created=document["created"],
        top=_headline(document), skip="Skip to the cards", style=html.asset("demo.css"),
    )  # fmt: skip


def _headline(document: Part) -> str:
    outcome, headline, lead = (escape(document[key]) for key in ("outcome", "headline", "lead"))
    return html.verdict_box(document["level"], outcome, headline, f"<p>{lead}</p>")


def _cards(document: Part) -> html.ReportSection:
    levels = ("poor", "good", document["level"])
    stages = zip(("before", "repaired", "deployed"), ("Before", "Repaired", "Deployed"), levels, strict=True)
    items = [
        html.card(heading, document[key]["value"], document[key]["text"], interval=document[key]["aside"], level=level)
        for key, heading, level in stages
    ]
    return html.ReportSection("cards", "One network, three steps", "Summary", html.cards(*items))


def _reliability(document: Part) -> html.ReportSection:
    figures = [
        f"<figure><figcaption>{escape(document[key]['caption'])}</figcaption>"
        f"{charts.reliability(f'reliability-{key}', document[key]['reliability'], heading, 'pictures')}"
        f"</figure>"
        for key, heading in (("before", "Before"), ("repaired", "Repaired"))
    ]
    lede = (
        '<p class="lede">Each bar is the accuracy of the pictures whose confidence falls in that bin. A model that '
        f"keeps its word ends every bar on the diagonal.</p>{charts.RELIABILITY_LEGEND}"
    )
    heading = "Confidence against accuracy, on pictures never seen before"
    return html.ReportSection("reliability", heading, "Reliability", lede + html.columns(*figures))


def _pictures(document: Part) -> html.ReportSection:
    choices = [f"the first {len(document[key])} that it {verb}" for key, verb in
             (("answered", "answers"), ("declined", "declines")) if document[key]]  # fmt: skip
    lede = (
        f'<p class="lede">These are {" and ".join(choices)}, in the order of the test set. Below each picture are the '
        "predicted class and the confidence after the repair, and the true class where the prediction is wrong.</p>"
    )
    rows = _row("Answered", document["answered"]) + _row("Declined", document["declined"])
    return html.ReportSection("pictures", "What it answers and what it declines", "Pictures", lede + rows)


def _row(heading: str, samples: Sequence[Part]) -> str:
    items = "".join(
        f'<li class="{"right" if sample["right"] else "wrong"}">'
        f'<img alt="{escape(sample["truth"])}" width="96" height="96" '
        f'src="data:image/png;base64,{sample["png"]}">'
        f'<span class="says">{escape(sample["label"])} {percent(sample["confidence"])}</span>'
        f'<span class="truth">{"right" if sample["right"] else "wrong: " + escape(sample["truth"])}</span></li>'
        for sample in samples
    )
    return f'<h3>{heading}</h3><ul class="pictures">{items}</ul>' if items else ""


def _own_file(document: Part) -> html.ReportSection:
    lede = (
        '<p class="lede">The same with outputs of your own model, from any framework: a repair with a promise, '
        "decisions on new data, and the audit of both. With these names the commands run inside this folder.</p>"
    )
    body = html.command_box("\n".join(document["commands"]))
    return html.ReportSection("yours", "Now your own model", "Your model", lede + body)


def _facts(document: Part) -> html.ReportSection:
    links = "".join(f'<li><a href="{escape(file)}">{escape(text)}</a></li>' for text, file in document["files"])
    body = html.terms("facts", document["facts"]) + f'<h3>Files</h3><ul class="links">{links}</ul>'
    return html.ReportSection("facts", "What was run", "Facts", body)
