"""Figures for papers: written whole and the same each time, and of the numbers they are given."""

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from calibrant import report
from calibrant.papers import normalised_given_max_logit, sorted_logits
from calibrant.report.figures.losses import at
from tests.helpers.audit_document import document
from tests.helpers.errors import facts
from tests.helpers.image_maps import image_maps
from tests.helpers.page_documents import activations, pictures

pytestmark = pytest.mark.slow

PIXELS = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)
BOXES = {
    "number": 3,
    "images_by_number": {"0": 2, "3": 1, "15": 1},
    "area_histogram": [1, 2, 0, 3],
    "objectness_histogram": [0, 1, 1, 2],
    "edges": [0, 0.25, 0.5, 0.75, 1],
    "mean_objectness": 0.4,
}
SPLITS = {
    "train": {"boxes": BOXES, "pixels": {}, "class_counts": {"cat": 4, "_d$og\x07": 5}},
    "val": {"boxes": {}, "pixels": {}, "class_counts": {f"class {k}": k for k in range(40)}},
}
PROBS, TARGET = np.array([0.9, 0.06, 0.04]), np.array([1.0, 0.0, 0.0])
EFFECTIVE = {"ls": np.array([0.9, 0.05, 0.05]), "acls $6": np.array([0.7, 0.4, -0.1])}

SOFTMAX, TRUTH = np.array([0.8, 0.15, 0.05]), np.array([0.3, 0.6, 0.1])
LOGITS = np.random.default_rng(0).normal(size=(40, 5))
BINS = normalised_given_max_logit([0.5] * 30 + [0.9] * 10, LOGITS.max(1), LOGITS.mean(1), fewest=3)
MODEL = document("one")["models"][0]
#: What draws a figure into a file.
DRAWS = {
    "reliability": lambda target: report.draw_reliability(target, MODEL["reliability"], title="$5 & <b>"),
    "histogram": lambda target: report.draw_confidence_histogram(target, MODEL["histogram"], title="a_b"),
    "curves": lambda target: report.draw_risk_coverage(target, MODEL["curves"], title="$"),
    "logits": lambda target: report.draw_logit_scatter(target, MODEL["logits"]),
    "lens": lambda target: report.draw_lens(
        target, logits=[5, 2, 1], label=0, probs=PROBS, target=TARGET, effective=EFFECTIVE,
        sweep=(np.linspace(0.4, 0.9999, 20), {k: np.linspace(0, 1, 20) for k in EFFECTIVE}),
    ),
    "lens without a sweep": lambda target: report.draw_lens(
        target, logits=[5, 2, 1], label=0, probs=PROBS, target=TARGET, effective=EFFECTIVE
    ),
    "regularisation": lambda target: report.draw_regularisation(target, SOFTMAX, TRUTH, 0.2 * (TRUTH - 1 / 3)),
    "regularisation by error": lambda target: report.draw_regularisation_by_error(
        target, {"a": (np.array([0.0, 1.0]), np.array([0.1, 0.0]))}
    ),
    "ranks": lambda target: report.draw_rank_statistics(target, sorted_logits(LOGITS).plain, label="$v$"),
    "normalised": lambda target: report.draw_normalised_given_max_logit(target, BINS, title="$5"),
    "contact sheet": lambda target: report.draw_contact_sheet(
        target, [report.Cell(PIXELS, "$5\ntwo lines"),
                 report.Cell(PIXELS, "boxes", np.array([[1.0, 2, 9, 8]]), ["cat"], (0.0, 0, 8, 8))],
        title="a_b$", legend={"_sky": (1.0, 0.0, 0.0)},
    ),
    "summary": lambda target: report.draw_data_summary(target, SPLITS, title="a_b$"),
    "summary of pixels": lambda target: report.draw_data_summary(
        target, {"val": {"boxes": {}, "pixels": {"sky": 0.4}, "class_counts": {}}}, title="a"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_figures_are_written_whole_and_the_same_each_time(tmp_path, name):
    """A ``matplotlibrc`` is read from the working folder; with its ``text.usetex`` a figure would need LaTeX."""
    DRAWS[name](tmp_path / "a.svg")
    theirs = {"text.usetex": True, "font.family": "serif", "axes.grid": True, "figure.facecolor": "black"}
    with matplotlib.rc_context(theirs):
        DRAWS[name](tmp_path / "b.svg")
        assert matplotlib.rcParams["text.usetex"], "the user's own figures stay theirs"
    first, second = ((tmp_path / file).read_bytes() for file in ("a.svg", "b.svg"))
    assert first == second
    assert first.startswith(b"<?xml")
    assert first.rstrip().endswith(b"</svg>")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_figures_in_other_formats_are_the_same_each_time(tmp_path, suffix, magic):
    contents = set()
    for name in ("a", "b"):
        DRAWS["reliability"](tmp_path / f"{name}{suffix}")
        contents.add((tmp_path / f"{name}{suffix}").read_bytes())
    assert len(contents) == 1
    assert contents.pop().startswith(magic)


WITHOUT_ACCURACY = {k: v for k, v in MODEL["reliability"].items() if k != "accuracy"}
REFUSED = [
    (lambda path: report.draw_reliability(path.with_suffix(".gif"), MODEL["reliability"]), ".gif"),
    (lambda path: report.draw_risk_coverage(path, []), "curve"),
    (lambda path: report.draw_risk_coverage(path, MODEL["curves"], labels=["a"]), "1 for 2"),
    (lambda path: report.draw_reliability(path, WITHOUT_ACCURACY), "accuracy"),
    (lambda path: report.draw_confidence_histogram(path, MODEL["histogram"] | {"edges": [0.0, 1.0]}), "edge"),
    (lambda path: report.draw_logit_scatter(path, MODEL["logits"] | {"msp": [0.5]}), "msp"),
    (lambda path: report.draw_contact_sheet(path, []), "picture"),
    (lambda path: report.draw_normalised_given_max_logit(path, []), "bin"),
]


@pytest.mark.parametrize(("draw", "fact"), REFUSED)
def test_what_cannot_be_drawn_is_said_and_nothing_is_written(tmp_path, draw, fact):
    with pytest.raises(ValueError, match=facts(fact)):
        draw(tmp_path / "x.png")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- audits


def test_figures_draw_the_numbers_given():
    model = MODEL
    axis = Figure().subplots()
    report.draw_reliability(axis, model["reliability"])
    known = [a for a in model["reliability"]["accuracy"] if a is not None]
    np.testing.assert_allclose([p.get_height() for p in axis.patches][: len(known)], known)

    axis = Figure().subplots()
    report.draw_confidence_histogram(axis, model["histogram"])
    heights = [p.get_height() for p in axis.patches]
    assert heights == model["histogram"]["right"] + model["histogram"]["wrong"]

    axis = Figure().subplots()
    report.draw_risk_coverage(axis, model["curves"], labels=["_a", "c" * 100])
    for line, curve in zip(axis.get_lines(), model["curves"], strict=True):
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([curve["coverage"], curve["risk"]]))
    assert [t.get_text() for t in axis.get_legend().get_texts()] == ["_a", "c" * 57 + "..."]

    axis = Figure().subplots()
    report.draw_logit_scatter(axis, model["logits"])
    drawn = np.concatenate([np.asarray(c.get_offsets()) for c in axis.collections if len(c.get_offsets()) > 1])
    assert len(drawn) == len(model["logits"]["points"]["msp"])
    np.testing.assert_allclose(np.sort(drawn[:, 1]), np.sort(model["logits"]["points"]["max_logit"]))


def test_the_part_is_the_same_enlarged():
    axes = report.new_figure((3, 5)).subplots(2, 1)
    bins = {"low": [0, 0.5], "high": [0.5, 1], "count": [0, 9], "confidence": [np.nan, 0.8], "accuracy": [np.nan, 0.6]}
    report.draw_reliability_zoom(tuple(axes), bins, zoom=(0.5, 0.9), title="CE")
    for axis in axes:
        assert axis.patches[0].get_height() == 0.6
        assert [(x, y) for line in axis.get_lines()[1:] for x, y in line.get_xydata().tolist()] == [(0.8, 0.6)]
    assert axes[0].get_xlim() == (0, 1)
    assert axes[1].get_xlim() == axes[1].get_ylim() == (0.5, 0.9)
    assert axes[0].patches[1].get_bbox().extents.tolist() == [0.5, 0.5, 0.9, 0.9]


def test_empty_bins_are_left_out_and_names_are_literal():
    axis = report.new_figure((3, 3)).subplots()
    part = {"count": [3, 0, 2], "objectness": [0.1, np.nan, 0.8], "confidence": [0.4, np.nan, 0.6]}
    report.draw_confidence_by_objectness(axis, {"a $model$": part})
    line, diagonal = axis.get_lines()
    assert list(line.get_xdata()) == [0.1, 0.8]
    assert list(line.get_ydata()) == [0.4, 0.6]
    assert line.get_label() == "a \\$model\\$"
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 1]


# ---------------------------------------------------------------------- images


def test_a_column_for_every_method():
    maps = image_maps()
    figure = report.draw_maps(maps, ("confidence", "reliability"))
    axes = np.array(figure.axes).reshape(2, 3)
    assert np.array_equal(axes[0, 0].images[0].get_array(), maps.picture)
    assert np.array_equal(axes[1, 0].images[0].get_array(), maps.truth_map())
    painted = maps.maps_of(maps.methods[1])["confidence"]
    assert np.array_equal(axes[0, 2].images[0].get_array(), painted)
    heights = [bar.get_height() for bar in axes[1, 1].patches]
    assert heights == [v for v in maps.methods[0].reliability["accuracy"] if v is not None]
    assert axes[1, 1].lines[0].get_ydata().tolist() == heights  # a point on each bar, also on those without height
    assert "ECE 25.00%" in axes[1, 1].get_title(loc="left")


def test_a_map_is_dark_where_it_is_0_and_bright_where_it_is_1():
    pixels = np.full((2, 3, 3), 100, np.uint8)
    heat = np.array([[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]])
    light = report.overlay_map(pixels, heat).sum(2)
    assert (np.diff(light[0].astype(int)) > 0).all()
    np.testing.assert_array_equal(light[0], light[1])


def test_a_figure_has_a_row_per_image_and_says_right_and_wrong_in_colour_and_by_a_mark():
    figure = report.draw_activation_maps(activations(), pictures())
    assert len(figure.axes) == 2 * 3
    assert [axis.get_title() for axis in figure.axes[:3]] == ["Picture", "hard", "with label\nsmoothing"]
    said = [(text.get_text(), text.get_color()) for text in figure.axes[1].texts]
    assert [text for text, _ in said] == ["✓ cat 70.00%", "✗ dog 20.00%", "✗ owl 10.00%"]
    assert len({colour for _, colour in said}) == 2
    assert len(figure.axes[1].patches) == 1, "the box"
    assert "objects covered" in figure.axes[3].get_xlabel()


def test_peaks_are_the_probabilities():
    axes = report.new_figure((3, 1)).subplots(1, 2)
    report.draw_peaks(axes, np.zeros((4, 4, 3)), {"m": [0.25, 0.75]}, "object: 20%")
    assert [bar.get_height() for bar in axes[1].patches] == [0.25, 0.75]
    assert axes[1].get_title(loc="left") == "m: 0.75"


def test_long_names_above_neighbouring_axes_do_not_meet():
    figure = report.new_figure((5.25, 1.5))
    axes = figure.subplots(1, 3)
    names = ["A. L.S. (mask) (beta = 0.75)", "Label Smoothing (mask)"]
    report.draw_peaks(axes, np.zeros((4, 4, 3)), {name: [0.25, 0.75] for name in names}, "object: 20%")
    figure.draw_without_rendering()
    first, second = (axis.title if axis.get_title() else axis._left_title for axis in axes[1:])
    assert first.get_window_extent().x1 < second.get_window_extent().x0


# ---------------------------------------------------------------------- losses and logits


def test_probabilities_are_distances_from_the_sides():
    height = np.sqrt(0.75)
    for p in ([0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]):
        x, y = at(p)
        assert np.isclose(y / height, p[0])  # above the side of the other two
        left = abs(height * x - 0.5 * y)  # from the line through (0, 0) and (0.5, height)
        assert np.isclose(left / height, p[2])
    np.testing.assert_allclose(at(np.eye(3)), [[0.5, height], [0, 0], [1, 0]])


def test_marks_regions_and_arrows_are_drawn():
    axis = report.new_figure((3, 3)).subplots()
    corners = [[0, 0, 1], [0.3, 0, 0.7], [0, 0.3, 0.7]]
    report.draw_simplex(
        axis,
        [report.Mark([0, 0, 1], "p"), report.Mark([0.1, 0.1, 0.8], "", filled=False)],
        region=corners,
        arrows=[([0.4, 0.3, 0.3], [0.2, 0.1, 0.7])],
        level={0.5: [[0.5, 0.0, 0.5], [0.0, 0.5, 0.5]]},
    )
    triangle, region = axis.patches[:2]
    np.testing.assert_allclose(region.get_xy()[:3], at(corners))
    assert len(triangle.get_xy()) == 4
    assert axis.lines[1].get_markerfacecolor() != axis.lines[2].get_markerfacecolor()
    assert {text.get_text() for text in axis.texts} >= {"p", "0.5"}


def test_a_histogram_has_shares_and_says_how_many_are_zero():
    axis = report.new_figure((3, 2)).subplots()
    report.draw_regulariser(axis, np.array([6, 0, 2]), np.array([0.0, 0.1, 0.2, 0.3]), 0.5, title="left")
    assert [bar.get_height() for bar in axis.patches] == [0.75, 0.0, 0.25]
    assert axis.texts[0].get_text() == "0 for 50.0%"


def test_a_sweep_is_in_percent_with_whiskers_where_there_is_a_spread():
    axis = report.new_figure((3, 2)).subplots()
    report.draw_sweep(axis, {"LS": ([0.1, 0.2], [0.5, 0.25], [0.01, np.nan])}, label="alpha", metric="ECE", log=True)
    assert list(axis.lines[0].get_ydata()) == [50.0, 25.0]
    (_, _, bars) = axis.containers[0]
    ends = [segment[:, 1].tolist() for segment in bars[0].get_segments()]
    assert ends == [[49.0, 51.0], [25.0, 25.0]]
    assert axis.get_xscale() == "log"
    assert axis.get_legend() is None


def test_arrows_follow_descent():
    _, (axis,) = report.new_axes((3, 3))
    DRAWS["regularisation"](axis)
    lengths = [note.xy[1] - note.xyann[1] for note in axis.texts]
    np.testing.assert_allclose(lengths, -3 * 0.2 * (TRUTH - 1 / 3), atol=1e-12)


def test_bands_reach_one_standard_deviation():
    _, (axis,) = report.new_axes((3, 3))
    DRAWS["ranks"](axis)
    ordered = -np.sort(-LOGITS, axis=1)
    corners = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert corners.max() == pytest.approx((ordered.mean(0) + ordered.std(0)).max())
    assert corners.min() == pytest.approx((ordered.mean(0) - ordered.std(0)).min())
