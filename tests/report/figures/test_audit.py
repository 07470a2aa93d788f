"""The audit's figures for papers: written whole, the same each time, and of the numbers given."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from calibrant.report import (
    draw_confidence_by_objectness,
    draw_confidence_histogram,
    draw_logit_scatter,
    draw_reliability,
    draw_reliability_zoom,
    draw_risk_coverage,
    new_figure,
)
from tests.helpers import audit_document as documents

DRAW = {
    "reliability": draw_reliability,
    "histogram": draw_confidence_histogram,
    "curves": draw_risk_coverage,
    "logits": draw_logit_scatter,
}


@pytest.mark.parametrize("part", DRAW)
@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_figures_are_written_and_the_same_each_time(tmp_path: Path, part: str, suffix: str, magic: bytes) -> None:
    given = documents.document(documents.model("x", samples=300))["models"][0][part]
    contents = set()
    for name in ("a", "b"):
        DRAW[part](tmp_path / f"{name}{suffix}", given, title="$5 & <b>")
        contents.add((tmp_path / f"{name}{suffix}").read_bytes())
    assert len(contents) == 1
    assert contents.pop().startswith(magic)
    assert len(list(tmp_path.iterdir())) == 2


def test_figures_are_the_same_whatever_the_users_matplotlibrc_says(tmp_path: Path) -> None:
    """A ``matplotlibrc`` is read from the working folder; with its ``text.usetex`` a figure would need LaTeX."""
    given = documents.document()["models"][0]["reliability"]
    draw_reliability(tmp_path / "usual.svg", given, title="a_b")
    theirs = {"text.usetex": True, "font.family": "serif", "axes.grid": True, "figure.facecolor": "black"}
    with matplotlib.rc_context(theirs):
        draw_reliability(tmp_path / "theirs.svg", given, title="a_b")
        assert matplotlib.rcParams["text.usetex"], "the user's own figures stay theirs"
    assert (tmp_path / "theirs.svg").read_bytes() == (tmp_path / "usual.svg").read_bytes()


@pytest.mark.parametrize("part", ["reliability", "histogram", "curves"])
def test_figures_of_next_to_nothing(tmp_path: Path, part: str) -> None:
    DRAW[part](tmp_path / "x.png", documents.minimal()["models"][0][part])
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_figures_draw_the_numbers_given() -> None:
    model = documents.document()["models"][0]
    axis = Figure().subplots()
    draw_reliability(axis, model["reliability"])
    known = [a for a in model["reliability"]["accuracy"] if a is not None]
    np.testing.assert_allclose([p.get_height() for p in axis.patches][: len(known)], known)

    axis = Figure().subplots()
    draw_confidence_histogram(axis, model["histogram"])
    heights = [p.get_height() for p in axis.patches]
    assert heights == model["histogram"]["right"] + model["histogram"]["wrong"]

    axis = Figure().subplots()
    draw_risk_coverage(axis, model["curves"], labels=["_a", "b", "c" * 100])
    for line, curve in zip(axis.get_lines(), model["curves"], strict=True):
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([curve["coverage"], curve["risk"]]))
    assert [t.get_text() for t in axis.get_legend().get_texts()] == ["_a", "b", "c" * 57 + "..."]

    axis = Figure().subplots()
    draw_logit_scatter(axis, model["logits"])
    drawn = np.concatenate([np.asarray(c.get_offsets()) for c in axis.collections if len(c.get_offsets()) > 1])
    assert len(drawn) == len(model["logits"]["points"]["msp"])
    np.testing.assert_allclose(np.sort(drawn[:, 1]), np.sort(model["logits"]["points"]["max_logit"]))


def test_figures_that_cannot_be_drawn_say_why(tmp_path: Path) -> None:
    model = documents.document(documents.model("x", samples=300))["models"][0]
    with pytest.raises(ValueError, match=r"written as .png, .svg, .pdf, got '.gif'"):
        draw_reliability(tmp_path / "x.gif", model["reliability"])
    with pytest.raises(ValueError, match="at least one curve"):
        draw_risk_coverage(tmp_path / "x.png", [])
    with pytest.raises(ValueError, match="one label per curve, got 1 for 3 curves"):
        draw_risk_coverage(tmp_path / "x.png", model["curves"], labels=["a"])
    with pytest.raises(ValueError, match="'accuracy' is missing"):
        draw_reliability(tmp_path / "x.png", {k: v for k, v in model["reliability"].items() if k != "accuracy"})
    with pytest.raises(ValueError, match="one edge more"):
        draw_confidence_histogram(tmp_path / "x.png", model["histogram"] | {"edges": [0.0, 1.0]})
    with pytest.raises(ValueError, match="one length"):
        draw_logit_scatter(tmp_path / "x.png", model["logits"] | {"msp": [0.5]})
    assert not list(tmp_path.iterdir())


def test_the_part_is_the_same_enlarged():
    axes = new_figure((3, 5)).subplots(2, 1)
    bins = {"low": [0, 0.5], "high": [0.5, 1], "count": [0, 9], "confidence": [np.nan, 0.8], "accuracy": [np.nan, 0.6]}
    draw_reliability_zoom(tuple(axes), bins, zoom=(0.5, 0.9), title="CE")
    for axis in axes:
        assert axis.patches[0].get_height() == 0.6
        assert [(x, y) for line in axis.get_lines()[1:] for x, y in line.get_xydata().tolist()] == [(0.8, 0.6)]
    assert axes[0].get_xlim() == (0, 1)
    assert axes[1].get_xlim() == axes[1].get_ylim() == (0.5, 0.9)
    assert axes[0].patches[1].get_bbox().extents.tolist() == [0.5, 0.5, 0.9, 0.9]


def test_empty_bins_are_left_out_and_names_are_literal() -> None:
    axis = new_figure((3, 3)).subplots()
    part = {"count": [3, 0, 2], "objectness": [0.1, np.nan, 0.8], "confidence": [0.4, np.nan, 0.6]}
    draw_confidence_by_objectness(axis, {"a $model$": part})
    line, diagonal = axis.get_lines()
    assert list(line.get_xdata()) == [0.1, 0.8]
    assert list(line.get_ydata()) == [0.4, 0.6]
    assert line.get_label() == "a \\$model\\$"
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 1]
