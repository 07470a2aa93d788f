"""Texts of the pages beyond rounding (tests/base/test_numbers.py): counts, bounds, and what HTML cannot hold."""

import json
from xml.etree import ElementTree

import pytest

from calibrant.report import text, workflow_lines, write_junit
from tests.helpers.audit_document import typed


@pytest.mark.parametrize(
    ("write", "values"),
    [
        (text.threshold, {0.9999989: "0.999999", 0.5: "0.5000", 1.0: "1.0000", 12.34567: "12.3457", -3.1: "-3.1000"}),
        (text.round_percent, {0.95: "95%", 0.0025: "0.25%", 0.1 + 0.2: "30%", 0.999: "99.9%"}),
        (text.magnitude, {1e-7: "1 x 10⁻⁷", 3.15e-6: "4 x 10⁻⁶", 9.2e-8: "1 x 10⁻⁷", 6.25e-8: "7 x 10⁻⁸"}),  # up
        (text.short_count, {0: "0", 950: "950", 1234: "1.2k", 35_400: "35k", 1_000_000: "1M"}),
        (text.percent, {None: "none", float("nan"): "none", 1e-300: "1.0 x 10⁻²⁹⁸%", 0.999996: "99.9996%"}),
        (text.number, {None: "none", float("inf"): "∞", 1234.5: "1,234.5000", 1.2346e-7: "1.2 x 10⁻⁷"}),
        (lambda v: text.span(None, v, "share", 0.4), {None: "", 0.5: "[none, 50.00%]"}),
        (lambda v: text.difference(v, "share", (0.5, 0.5)), {None: "none", 0.00001: "0.00 pp"}),
        (lambda v: text.difference_span(v, v, "share", (0.1, 0.2)), {None: ""}),
    ],
)
def test_numbers_by_hand(write, values):
    assert [typed(write(value)) for value in values] == list(values.values())


def test_halves_of_characters_and_controls_are_replaced():
    assert text.escape("a\udcff\x00\x1bb<") == "a\ufffd\ufffd\ufffdb&lt;"


def test_embedded_json_cannot_end_its_element():
    words = "</script><!-- & \u2028 ü 🦜"
    made = text.embedded({"x": words})
    assert not set("<>&\u2028") & set(made)
    assert json.loads(made) == {"x": words}


TURN = {"\u202e": "\u202c", "\u202d": "\u202c", "\u202a": "\u202c", "\u202b": "\u202c", "\u2067": "\u2069"}


@pytest.mark.parametrize("mark", TURN)
def test_marks_of_direction_end_where_the_text_ends(mark):
    end = TURN[mark]
    assert text.plain(f"a{mark}b{end}c") == f"a{mark}b{end}c"  # turns what is in it, and nothing else
    assert text.plain(f"a{mark}b") == "a\ufffdb"
    assert text.plain(f"a{end}b") == "a\ufffdb"
    assert text.plain(f"{mark}a{mark}b{end}") == f"\ufffda{mark}b{end}"
    assert text.plain(f"\u2067a{mark}b\u2069") in (
        "\u2067a\ufffdb\ufffd",
        "\ufffda\u2067b\u2069",
        "\ufffda\ufffdb\ufffd",
    )


JUDGEMENTS = [
    {"requirement": "ece <= 0.03", "group": "", "status": "pass", "text": "passes"},
    {"requirement": "ece <= 0.03", "group": "site=<a> & \x00", "status": "unknown", "text": 'cannot "tell" <&>'},
    {"requirement": "accuracy >= 0.9", "group": "", "status": "fail", "text": "fails: 80%\nno"},
]


@pytest.mark.parametrize(("unknown", "failures", "skipped"), [("fail", 2, 0), ("pass", 1, 1)])
def test_a_case_for_every_requirement(tmp_path, unknown, failures, skipped):
    write_junit(tmp_path / "out.xml", "test.npz", JUDGEMENTS, unknown=unknown)
    suite = ElementTree.parse(tmp_path / "out.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", str(failures), str(skipped))
    assert len(suite.findall("testcase/failure")) == failures
    assert suite.findall("testcase")[1].get("name") == "ece <= 0.03 [site=<a> & \ufffd]"


def test_annotations_end_where_their_line_does():
    lines = workflow_lines(JUDGEMENTS)
    assert [line.partition(" ")[0] for line in lines] == ["::warning", "::error"]
    assert lines[1] == "::error title=accuracy >= 0.9::fails: 80%25%0Ano"
