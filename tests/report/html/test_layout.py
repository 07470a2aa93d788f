"""What every page begins with: its policy names the one script that may run."""

import re

from calibrant.report import write_audit
from calibrant.report.html.layout import card, cards, columns, head, policy
from calibrant.report.text import escape
from tests.helpers import audit_document


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
    made = card("ECE <1>", "4.20%", "A & B", interval="[1%, 9%]", level="poor", figure="<svg></svg>")
    assert made.startswith('<article class="card poor"><h3>ECE &lt;1&gt;</h3>')
    assert "A &amp; B</p><svg></svg></article>" in made
    assert '<span class="ci">[1%, 9%]</span>' in made
    plain = card("ECE", "4.20%", "text")
    assert 'class="card"' in plain
    assert "ci" not in re.findall(r'class="(\w+)"', plain)
    assert cards(made, plain) == f'<div class="cards">{made}{plain}</div>'
    assert cards() == columns() == ""
