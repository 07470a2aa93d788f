"""Texts and numbers of the audit page: digits worked by hand, and what HTML cannot hold."""

from __future__ import annotations

import json

import pytest

from calibrant.report import text
from tests.helpers.audit_document import typed


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0812, "8.12%"), (0.931, "93.10%"), (0.00812, "0.81%"), (0.000123456, "0.012%"), (0.0, "0.00%"),
        (1.0, "100.00%"), (0.999996, "99.9996%"), (0.99996, "99.996%"), (-0.0312, "-3.12%"), (None, "none"),
        (float("nan"), "none"), (1.2e-7, "0.000012%"), (1e-300, "1.0 x 10⁻²⁹⁸%"), (0.181349, "18.13%"),
    ],
)  # fmt: skip
def test_shares_are_percentages_with_sensible_digits(share: float | None, shown: str) -> None:
    assert typed(text.percent(share)) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.45812, "0.4581"), (1.5, "1.5000"), (12.3456, "12.3456"), (1234.5, "1,234.5000"), (0.0, "0.0000"),
        (0.00012346, "0.0001"), (2e-5, "0.000020"), (1.2346e-7, "1.2 x 10⁻⁷"), (-2.5, "-2.5000"), (None, "none"),
        (float("inf"), "∞"), (0.9999989, "1.0000"),
    ],
)  # fmt: skip
def test_numbers_have_four_decimals(value: float | None, shown: str) -> None:
    assert typed(text.number(value)) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.9999989, "0.999999"), (0.5, "0.5000"), (1.0, "1.0000"), (12.34567, "12.3457"), (-3.1, "-3.1000")],
)
def test_thresholds_below_one_do_not_read_one(value: float, shown: str) -> None:
    assert typed(text.threshold(value)) == shown


@pytest.mark.parametrize(("share", "shown"), [(0.95, "95%"), (0.0025, "0.25%"), (0.1 + 0.2, "30%"), (0.999, "99.9%")])
def test_round_shares_have_no_digits_to_spare(share: float, shown: str) -> None:
    assert text.round_percent(share) == shown


def test_intervals_have_the_decimals_and_the_unit_of_their_value() -> None:
    assert typed(text.span(0.075, 0.088, "share", 0.0812)) == "[7.50%, 8.80%]"
    assert typed(text.span(0.00074, 0.0088, "share", 0.00812)) == "[0.07%, 0.88%]"
    assert typed(text.span(0.4, 0.51, "number", 0.4581)) == "[0.4000, 0.5100]"
    assert typed(text.span(None, None, "share", 0.5)) == ""
    assert typed(text.span(None, 0.5, "share", 0.4)) == "[none, 50.00%]"


def test_differences_have_the_decimals_of_what_they_compare() -> None:
    assert typed(text.difference(-0.0684, "share", (0.08, 0.0116))) == "-6.84 pp"
    assert typed(text.difference(0.00031, "share", (0.0004, 0.00071))) == "+0.031 pp"
    assert typed(text.difference(-0.0639, "number", (0.4581, 0.3942))) == "-0.0639"
    assert typed(text.difference(0.00001, "share", (0.5, 0.50001))) == "0.00 pp"
    assert typed(text.difference(None, "share", (0.5, None))) == "none"
    assert typed(text.difference_span(-0.075, 0.01, "share", (0.08, 0.02))) == "[-7.50, +1.00]"
    assert typed(text.difference_span(0.0312, 0.0549, "number", (0.4581, 0.5012))) == "[+0.0312, +0.0549]"
    assert text.difference_span(None, None, "share", (0.1, 0.2)) == ""


@pytest.mark.parametrize(
    ("bound", "shown"), [(1e-7, "1 x 10⁻⁷"), (3.15e-6, "4 x 10⁻⁶"), (9.2e-8, "1 x 10⁻⁷"), (6.25e-8, "7 x 10⁻⁸")]
)
def test_bounds_are_rounded_up(bound: float, shown: str) -> None:
    assert typed(text.magnitude(bound)) == shown


@pytest.mark.parametrize(("n", "shown"), [(0, "0"), (950, "950"), (1234, "1.2k"), (35_400, "35k"), (1_000_000, "1M")])
def test_short_counts(n: int, shown: str) -> None:
    assert text.short_count(n) == shown


def test_halves_of_characters_and_controls_are_replaced() -> None:
    assert text.escape("a\udcff\x00\x1bb<") == "a\ufffd\ufffd\ufffdb&lt;"


def test_embedded_json_cannot_end_its_element() -> None:
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
