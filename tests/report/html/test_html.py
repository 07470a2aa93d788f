"""What every page begins with: its policy names the one script that may run."""

import re

import pytest

from calibrant.losses import describe, names
from calibrant.metrics import METRICS
from calibrant.report import PaperPart, write_audit, write_paper_page
from calibrant.report.html import (
    card,
    cards,
    collect_abbreviations,
    columns,
    explain_abbreviations,
    head,
    mark_abbreviations,
    policy,
)
from calibrant.report.text import escape
from tests.helpers import audit_document

ECE = '<abbr title="expected calibration error">ECE</abbr>'
LS = '<abbr title="Label smoothing">ls</abbr>'
METHODS = {"ls": "Label smoothing", "als+context": "Adaptive & more", "same": "Same"}


def test_the_policy_names_the_script():
    assert policy() != policy("") != policy("x")
    # By openssl: printf x | openssl dgst -sha256 -binary | base64
    assert "script-src 'sha256-LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE='" in policy("x")
    for part in ("default-src 'none'", "base-uri 'none'", "form-action 'none'", "img-src data:"):
        assert part in policy()
    assert escape('<"') in head('<"')


def test_audits_have_the_same_policy(tmp_path):
    write_audit(tmp_path / "audit.html", audit_document.three_files())
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    assert f'content="{policy(scripts[0])}"' in page
    assert page.index("Content-Security-Policy") < page.index("<script")
    assert not re.findall(r"<[^>]+ on[a-z]+=", page)


def test_a_card_escapes_what_it_shows_and_leaves_out_what_it_was_not_given():
    made = card("ECE <1>", "4.20%", "A & B", interval="[1%, 9%]", level="poor")
    assert made.startswith('<article class="card poor"><h3>ECE &lt;1&gt;</h3>')
    assert "A &amp; B</p></article>" in made
    assert '<span class="ci">[1%, 9%]</span>' in made
    plain = card("ECE", "4.20%", "text")
    assert 'class="card"' in plain
    assert "ci" not in re.findall(r'class="(\w+)"', plain)
    assert cards(made, plain) == f'<div class="cards">{made}{plain}</div>'
    assert cards() == columns() == ""


def marked(html, methods=None):
    return mark_abbreviations(html, collect_abbreviations(methods), in_names=bool(methods))


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>an ECE of 2%</p>", f"<p>an {ECE} of 2%</p>"),
        ("<p>tuned for ece.</p>", f"<p>tuned for {ECE}.</p>"),  # a function's name is written as its label
        ("<p>ECE, then ece</p>", f"<p>{ECE}, then ECE</p>"),  # prose: the first of a section
        ("<th>ECE (%)</th><th>ECE</th>", f"<th>{ECE} (%)</th><th>{ECE}</th>"),  # heads stand by themselves
        ("<p>E-AURC</p>", '<p><abbr title="excess area under the risk-coverage curve">E-AURC</abbr></p>'),
        ("<p>piece, ECEs, ranks-ece.md, --ece, a/ece, ece=3</p>",) * 2,
        ('<td data-label="ECE" title="ECE">1</td>',) * 2,
        ("<code>ece</code><pre>ece</pre><svg><text>ECE</text></svg><button>ECE</button>",) * 2,
        ("<bdi>ece</bdi>",) * 2,  # a class may be called so
        ("<p>ls</p>",) * 2,  # of no method of the page
    ],
)
def test_metrics(html, expected):
    assert marked(html) == expected


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<th><bdi>ls, tuned for ece</bdi></th>", f"<th><bdi>{LS}, tuned for {ECE}</bdi></th>"),
        ("<h3>LS + temperature</h3>", f"<h3>{LS.replace('ls', 'LS')} + temperature</h3>"),
        ("<li>als+context</li>", '<li><abbr title="Adaptive &amp; more">als+context</abbr></li>'),
        ("<li>als and mbls, same</li>",) * 2,
    ],
)
def test_methods(html, expected):
    assert marked(html, METHODS) == expected


def test_only_what_is_marked_is_explained():
    html = marked("<p>ls has a lower ECE</p>", METHODS)
    explained = explain_abbreviations(html, collect_abbreviations(METHODS))
    assert explained == [
        ("ls", "Label smoothing"),
        ("ECE", f"expected calibration error: {METRICS['ece'].description}"),
    ]


def test_every_label_in_capitals_has_a_title():
    """Two capitals in a row, or one after a small letter, make an abbreviation; those of a part are explained by it."""
    entries = collect_abbreviations()
    for metric in METRICS.values():
        for word in re.findall(r"[\w-]*(?:[A-Z]{2}|[a-z][A-Z])[\w-]*", metric.label):
            assert {word.lower(), metric.label.lower()} & set(entries), metric.label


def test_every_loss_has_a_title_in_words():
    for name in names():
        assert not re.search(r"[A-Z]{2}", describe(name).title), name


def test_the_page_has_figure_table_notes_and_the_command(tmp_path):
    figure = tmp_path / "fig.svg"
    figure.write_text("<svg xmlns='http://www.w3.org/2000/svg'></svg>")
    parts = [PaperPart("fig1", figure=figure), PaperPart("Table 1", text="One run of ls.", table="<table></table>")]
    write_paper_page(
        tmp_path / "page.html", title="X <1>", lead="Made.", parts=parts, notes=["a < b"], files=["fig.svg"],
        command="calibrant paper x", methods={"ls": "Label smoothing", "ce": "Cross-entropy"},
    )  # fmt: skip
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("data:image/svg+xml;base64,", "<table></table>", "One run of ", "a &lt; b", "calibrant paper x"):
        assert words in page
    assert "<1>" not in page
    assert '<abbr title="Label smoothing">ls</abbr>' in page
    assert "<dt>ls</dt><dd>Label smoothing</dd>" in page
    assert "Cross-entropy" not in page, "it is not named"


def test_a_lead_that_begins_with_an_abbreviation_is_one_paragraph(tmp_path):
    page = tmp_path / "page.html"
    write_paper_page(page, title="X", lead="ECE of ls.", parts=[], notes=[], files=[], command="calibrant paper x")
    text = page.read_text(encoding="utf-8")
    lead = text[text.index('<div class="lead">') :].partition("</div>")[0]
    assert lead.startswith('<div class="lead"><p><abbr'), "a grid would put the abbreviation and the rest on two lines"
    assert lead.endswith(" of ls.</p>")
