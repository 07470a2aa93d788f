"""Charts of several methods: words of metrics, colours that can be told apart, looks of methods and variants."""

from __future__ import annotations

import itertools
import re
from importlib import resources

import numpy as np
import pytest

from calibrant.report.html.comparison_charts import Look, clamped, label_of, limits, looks, scatter, unit_of

NEAR = {"a": [[0.80, 0.10], [0.81, 0.11]], "b": [[0.82, 0.12]], "c": [[0.84, 0.20]]}


def test_words_of_metrics() -> None:
    assert label_of("ece") == "ECE"
    assert label_of("val_accuracy") == "Accuracy (validation)"
    assert label_of("train_loss") == "loss (training)"
    assert label_of("classwise_ece") == "Class-wise ECE"
    assert label_of("test_risk_at_coverage_0.8") == "Risk at 80% coverage (test)"
    assert [unit_of(m) for m in ("val_ece", "accuracy", "nll", "aurc", "loss")] == ["share"] * 2 + ["number"] * 3


def colours(dark: bool) -> list[str]:
    """The colours of the style by their number, as the browser would read them."""
    style = "".join(
        resources.files("calibrant.report").joinpath("html", "assets", f).read_text(encoding="utf-8")
        for f in ("report.css", "comparison.css")
    )
    blocks = re.findall(r"(prefers-color-scheme:dark\)\{)?:root\{(.*?)\}", style, flags=re.S)
    own = "".join(body for scheme, body in blocks if bool(scheme) == dark)
    found = dict(re.findall(r"--s(\d+):(#[0-9a-f]{6})", own))
    return [found[str(k)] for k in range(14)]


def linear(colour: str) -> list[float]:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]


def lab(colour: str) -> np.ndarray:
    """CIE L*a*b* of an sRGB colour under D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = to_xyz @ linear(colour) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(("dark", "ground"), [(False, "#fcfcfb"), (True, "#14181c")])
def test_fourteen_colours_can_be_told_apart(dark: bool, ground: str) -> None:
    """At least 15 apart in CIE 1976, seven times what can just be seen; nearer than 30 only with other dashes."""
    found = colours(dark)
    assert len(set(found)) == 14
    for (j, a), (k, b) in itertools.combinations(enumerate(found), 2):
        apart = float(np.linalg.norm(lab(a) - lab(b)))
        assert apart > 15, (a, b)
        assert apart > 30 or Look(j).line.split()[1] != Look(k).line.split()[1], (a, b)
    for colour in found:  # WCAG's contrast of graphics
        light, dim = sorted((np.dot([0.2126, 0.7152, 0.0722], linear(c)) for c in (colour, ground)), reverse=True)
        assert (light + 0.05) / (dim + 0.05) >= 3, colour


def test_looks_of_more_methods_than_colours_still_differ() -> None:
    found = list(looks([f"m{k}" for k in range(40)] * 2).values())
    assert len(found) == 40
    assert len({look.line for look in found[:14]}) == 14
    assert len({(look.line, look.mark(0, 0)) for look in found}) == 40
    assert len({re.sub(r" s\d+", "", look.mark(0, 0)) for look in found[:14]}) == 14


def test_variants_of_a_method_share_its_colour_and_look_different() -> None:
    names = ["ce", *(f"{m}, tuned for {t}" for m in ("ls", "lr") for t in ("ece", "nll", "aurc", "accuracy")), "ls"]
    found = looks(names, {name: name.partition(",")[0] for name in names})
    assert [found[n].colour for n in names] == ["s0", *["s1"] * 4, *["s2"] * 4, "s1"]
    assert found["ls"] == found["ls, tuned for ece"]
    assert len({found[n].line for n in names}) == len({found[n].mark(0, 0) for n in names}) == 9


def drawn(points):
    groups = [{"name": name, "points": own} for name, own in points.items()]
    return scatter("chart", groups, looks(list(points)))


@pytest.mark.parametrize(
    ("groups", "ends"),
    [
        ([[0.1, 0.11], [0.12], [0.2]], (0.093, 0.207)),  # 7% of 0.1 on either side
        ([[0.1, 0.11], [0.12], [0.2], [0.9]], (0.093, 0.207)),  # 0.1 is less than a quarter of 0.8: the last is out
        ([[0.1], [0.12], [0.2], [0.3]], (0.086, 0.314)),  # 0.1 is half of 0.2: nobody is
        ([[0.1], [0.1], [0.9]], (0.044, 0.956)),  # of three methods none is the odd one
        ([[0.1], [0.12], [0.88], [0.9]], (0.044, 0.956)),  # nor of two pairs
        ([[0.5], [0.5], [0.5], [0.9]], (0.475, 0.525)),  # a range of nothing: a twentieth of the value
    ],
)
def test_one_method_does_not_squeeze_the_others(groups, ends):
    assert limits(groups) == pytest.approx(ends)


def test_a_value_beyond_the_end_is_drawn_at_it():
    assert [clamped(value, (0.2, 0.4)) for value in (0.1, 0.3, 0.9)] == [0.2, 0.3, 0.4]


def test_an_arrow_names_what_lies_outside():
    chart = drawn(NEAR | {"far": [[0.83, 0.90], [0.82, 0.95]]})
    assert re.findall(r">(↑[^<]*)<", chart) == ["↑ far: ECE 90.00% to 95.00%"]
    assert "far: accuracy 83.00%, ECE 90.00%" in chart  # the tip keeps the true value
    assert "points to runs outside" in chart


def test_two_outside_have_labels_of_their_own():
    chart = drawn(NEAR | {"c": [[0.84, 0.12]], "far": [[0.83, 0.20]], "further": [[0.83, 0.99]]})
    rows = re.findall(r'y="([\d.]+)">↑', chart)
    assert len(set(rows)) == 2


def test_without_an_odd_one_there_is_no_arrow():
    assert not re.search("[↑↓←→]", drawn(NEAR))
