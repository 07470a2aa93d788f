"""One rule of rounding: digits worked by hand, and the same text for one value wherever it stands."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
from decimal import ROUND_HALF_UP, Decimal
from importlib import resources

import pytest

from calibrant.auditing.findings import with_limits
from calibrant.base import numbers as _numbers
from calibrant.base.numbers import difference, difference_span, fixed, p_words, percent, significant, span, span_words
from calibrant.experiments.tables.cells import Column, number_text
from calibrant.metrics import Interval
from calibrant.report import text
from calibrant.report.html.tables import changed_value, valued
from tests.helpers.audit_document import typed


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.99995, "99.995%"), (0.00004, "0.0040%"), (0.125, "12.50%"), (0.12345, "12.35%"), (0.57005, "57.01%"),
        (0.00145, "0.15%"), (-0.00145, "-0.15%"), (0.9997, "99.97%"), (0.0002, "0.020%"), (0.0, "0.00%"),
        (1.0, "100.00%"), (0.999949, "99.99%"), (1 - 1e-12, "99.9999999999%"), (0.001, "0.10%"), (None, "-"),
    ],
)  # fmt: skip
def test_shares_by_hand(share: float | None, shown: str) -> None:
    assert percent(share) == shown


def test_other_texts_by_hand() -> None:
    assert [fixed(v, 2) for v in (0.005, 0.015, 2.675, 1.005, -0.005)] == ["0.01", "0.02", "2.68", "1.01", "-0.01"]
    assert fixed(0.5701 - 0.56995, 5) == "0.00015"
    assert [significant(v) for v in (0.125, 0.0996, 1234.5, 0.0)] == ["0.13", "0.1", "1.2e+03", "0"]
    assert [p_words(p) for p in (0.05, 0.00009, 1.0)] == ["p = 0.0500", "p < 0.0001", "p = 1.0000"]
    assert span_words(0.0005, 0.02, "share", 0.00125) == "0.05% to 2.00%"
    assert span(0.00012, 0.3, "share", 0.125) == "[0.01%, 30.00%]"
    assert span(None, None, "share", 0.5) == ""
    assert difference(0.0, "number") == "0.0000"
    assert [_numbers.allowed(v) for v in (0.05, 0.125, 0.0001, 1 / 3)] == ["5%", "12.5%", "0.01%", "33.33%"]
    assert [_numbers.number(value) for value in (1e30, -math.inf)] == ["1.0e30", "-inf"]


def test_halves_of_decimals_go_away_from_zero() -> None:
    for k in range(100, 100_000, 7):  # shares with five decimals, from 0.1% on
        share = k / 100_000
        shown = (Decimal(k) / 1000).quantize(Decimal("0.01"), ROUND_HALF_UP)
        if shown < 100:
            assert percent(share) == f"{shown}%" == f"{number_text(share, Column('ece'))}%"


def random_shares(number: int) -> list[float]:
    draw = random.Random(17)
    ends = [10 ** draw.uniform(-9, 0) for _ in range(number)]
    return [*ends, *(1 - share for share in ends), *(round(draw.random(), draw.randint(2, 6)) for _ in range(number))]


def keyboard(words: str) -> str:
    """What a page prints, with the signs of a keyboard and without markup."""
    words = re.sub("<[^>]*>", "", typed(words)).replace("\u221e", "inf")
    return re.sub(" x 10(\\S*?)(?=[%,\\]]|$)", lambda power: "e" + power[1].translate(POWERS), words)


POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def test_a_sentence_and_a_table_say_the_same() -> None:
    for share in random_shares(300):
        low, high = 0.9 * share, min(1.0, 1.1 * share)
        assert keyboard(valued(share, low, high, "share")) == with_limits(Interval(share, low, high))
        assert keyboard(text.percent(share)) == percent(share)
        assert keyboard(text.number(share)) == _numbers.number(share)
        for unit in ("share", "number"):
            change = difference(low - high, unit, (high, low)), difference_span(low - high, 0.0, unit, (high, low))
            assert keyboard(changed_value(low - high, low - high, 0.0, unit, (high, low))) == " ".join(change)


def test_a_text_is_never_0_or_100_for_what_is_not() -> None:
    for share in random_shares(300):
        if 1e-8 < share < 1 - 1e-12:
            value = Decimal(percent(share).removesuffix("%"))
            assert 0 < value < 100
            assert abs(value - 100 * Decimal(share)) <= Decimal("0.00501")


def test_a_percentage_beside_a_papers_table_agrees_with_it() -> None:
    for share in random_shares(300):
        assert text.table_percent(share) == f"{number_text(share, Column('ece'))}%"
        if share >= 0.001 and share < 0.99995:
            assert text.percent(share) == text.table_percent(share)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_script_of_the_pages_rounds_alike() -> None:
    script = resources.files("calibrant.report").joinpath("html", "assets", "report.js").read_text(encoding="utf-8")
    twins = script[script.index("const DASH") : script.index("/* --- tables --- */")]
    shares = [0.57005, 0.00145, 0.99995, 0.00004, 0.125, 0.0, 1.0, *random_shares(400)]
    values = [*shares, 12.34565, 1e16, -3.00005]
    program = (
        f"{twins}\nconst [s, v] = {json.dumps([shares, values])};"
        "console.log(JSON.stringify([s.map(percent), v.map(threshold), s.map((x) => span(x / 2, x, x))]))"
    )
    made = json.loads(subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True).stdout)
    assert made[0] == [text.percent(share) for share in shares]
    assert made[1] == [text.threshold(value) for value in values]
    assert made[2] == [text.span(share / 2, share, "share", share) for share in shares]
