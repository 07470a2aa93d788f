"""Figures of SC in small, against loops over the files of their runs."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from calibrant.data import read
from calibrant.experiments.papers import Workbench, find_item, items, rankings, sc, workbench
from calibrant.experiments.papers.rankings import DrawnPixels, choose_image, mean_wrong_rank
from calibrant.experiments.papers.sc_logits import gradient_by_error, regularisation_gradient
from tests.experiments.papers import slow_sc
from tests.experiments.papers.conftest import TINY
from tests.helpers.errors import facts
from tests.helpers.mask_runs import PLAIN as MASKS

pytestmark = pytest.mark.slow

LABELS = {"CE": "ce", "LS, alpha = 0.1": "ls, alpha=0.1", "LS, alpha = 0.2": "ls, alpha=0.2"}


def make(bench, name):
    return find_item(f"sc.{name}").make(bench)


def test_every_figure_with_numbers_is_there_in_the_order_of_the_paper():
    numbers = [item.place for item in items().values() if item.paper == "SC"]
    assert numbers == [f"SC, Fig. {n}" for n in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)]


@pytest.mark.parametrize("name", ["fig1", "fig4", "fig15"])
def test_risk_by_smoothing(bench, name):
    output = make(bench, name)
    lines, dots = slow_sc.curves(output.figures[name].axes[0])
    assert list(lines) == list(LABELS)
    for label, line in lines.items():
        _, msp, correct = slow_sc.judged(bench, LABELS[label], 0)
        slow_sc.assert_curve(line, msp, correct)
    for (coverage, _), alpha in zip(dots, (0.1, 0.2), strict=True):
        _, msp, _ = slow_sc.judged(bench, f"ls, alpha={alpha:g}", 0)
        assert coverage == pytest.approx(np.mean(msp > 1 - alpha + alpha / 16))
    areas = {m: [slow_sc.area(*slow_sc.judged(bench, m, seed)[1:]) for seed in (0, 1)] for m in LABELS.values()}
    table = output.tables[f"{name}-numbers"]
    for row in table.rows:
        assert row.cells[1].mean == pytest.approx(np.mean(areas[row.method]), abs=1e-6)
    words = next(note for note in output.notes if "AURC" in note)
    higher = [sum(b > a for a, b in zip(areas["ce"], areas[m], strict=True)) for m in list(areas)[1:]]
    assert re.findall(r"(\d) of 2", words) == [str(count) for count in higher]


@pytest.mark.parametrize("name", ["fig8", "fig11"])
def test_pooled_with_a_shifted_set(bench, name):
    output = make(bench, name)
    left, right = output.figures[name].axes
    lines, _ = slow_sc.curves(left)
    widths = [bar.get_width() for bar in right.patches]
    for k, (label, method) in enumerate(LABELS.items()):
        sets = [slow_sc.judged(bench, method, 0, part) for part in ("test", "texture")]
        msp, correct = (np.concatenate([part[at] for part in sets]) for at in (1, 2))
        slow_sc.assert_curve(lines[label], msp, correct)
        accepted = sorted(range(240), key=lambda row: -msp[row])[:24]
        errors = [row for row in accepted if not correct[row]]
        assert widths[k] == sum(row < 120 for row in errors)
        assert widths[3 + k] == sum(row >= 120 for row in errors)
    assert len(output.tables[f"{name}-numbers"].rows[0].cells) == 3


@pytest.mark.parametrize("name", ["fig9", "fig12", "fig16"])
def test_before_and_after_normalisation(bench, name):
    output = make(bench, name)
    figure = output.figures["fig9-left" if name == "fig9" else name]
    lines, _ = slow_sc.curves(figure.axes[0])
    for label in ("CE", "LS, alpha = 0.2"):
        logits, msp, correct = slow_sc.judged(bench, LABELS[label], 0)
        slow_sc.assert_curve(lines[f"{label}, MSP"], msp, correct)
        for word, centre in (("not centred", False), ("centred", True)):
            p, _ = slow_sc.best_power(bench, LABELS[label], 0, centre)
            slow_sc.assert_curve(lines[f"{label}, {word}"], slow_sc.normalised(logits, p, centre), correct)
        assert len({lines[f"{label}, {word}"].get_color() for word in ("MSP", "not centred", "centred")}) == 1
        for seed in (0, 1):  # the least AURC on validation data: a reading's, or the MSP's where it is no higher
            _, msp, correct = slow_sc.judged(bench, LABELS[label], seed, "val")
            powers = [slow_sc.best_power(bench, LABELS[label], seed, centre) for centre in (True, False)]
            p, least = min(powers, key=lambda entry: entry[1])
            winner = f"p = {p}" if least < slow_sc.area(msp, correct) - 1e-9 else "MSP"
            assert any(winner in note for note in output.notes)


def test_a_shifted_set_is_asked_for_before_anything_is_trained(tmp_path):
    with pytest.raises(ValueError, match=facts("sc_imagenet_vit_s16", "data.also.sketch.path")):
        make(Workbench(tmp_path, data="imagenet"), "fig11")
    assert not list(tmp_path.iterdir())


def test_the_better_reading_is_said():
    pairs = ((0.1, 0.2), (0.3, 0.2), (0.1, 0.15))
    norms = [{True: SimpleNamespace(area=a), False: SimpleNamespace(area=b)} for a, b in pairs]
    sets = [SimpleNamespace(norms=part) for part in norms]
    assert "2 of 3" in sc.reading_words(sets)
    assert "not centred" in sc.reading_words(sets[1:2])
    assert "centred" not in sc.reading_words(sets[:2])  # one run each


def test_runs_without_a_shifted_set_are_refused(tmp_path):
    runs = SimpleNamespace(folders={"ce": {0: tmp_path}})
    with pytest.raises(ValueError, match=r"."):
        sc.shifted_name(runs)


CE, LS = "ce", "ls, alpha=0.2"


def test_overconfident_examples_are_the_extremes_of_what_both_get_wrong(bench):
    output = make(bench, "fig5")
    shown = [(axis.get_images()[0].get_array(), axis.get_title("left")) for axis in output.figures["fig5"].axes]
    sets = {method: slow_sc.judged(bench, method, 0) for method in (CE, LS)}
    _, labels, ids = slow_sc.read_set(bench, LS, 0)
    rank = {m: [np.mean([other >= own for other in msp]) for own in msp] for m, (_, msp, _) in sets.items()}
    both = [k for k in range(120) if not sets[CE][2][k] and not sets[LS][2][k]]
    chosen = sorted(both, key=lambda k: rank[LS][k] - rank[CE][k])[:8]
    scenes = read("scenes", "test", context=0.7, ambiguous=0.0, size=16, samples=TINY["test"]["samples"])
    names = scenes.classes
    for k, (pixels, caption) in zip(chosen, shown, strict=True):
        np.testing.assert_array_equal(pixels, np.asarray(scenes.inputs[scenes.ids.index(ids[k])]))
        said = {method: names[int(np.argmax(sets[method][0][k]))] for method in (CE, LS)}
        assert caption.split("\n") == [
            names[labels[k]],
            f"LS, alpha = 0.2: {said[LS]}, {rank[LS][k]:.1%}",
            f"CE: {said[CE]}, {rank[CE][k]:.1%}",
        ]
    surer = np.mean([rank[LS][k] < rank[CE][k] for k in both])
    assert [word for word in (str(len(both)), f"{surer:.1%}") if word not in output.notes[1]] == []


def test_the_regularisation_gradient_is_that_of_the_paper():
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(size=(3, 7)), rng.dirichlet(np.ones(7), 3)
    np.testing.assert_allclose(regularisation_gradient(logits, truth, 0.3), 0.3 * truth - 0.3 / 7, atol=1e-12)  # Eq. 15
    error = np.array([0.0, 0.25, 1.0])
    np.testing.assert_allclose(gradient_by_error(error, 5, 0.1), 0.1 * (1 - error) - 0.1 / 5, atol=1e-12)  # Eq. 16


def test_arrows_point_against_the_gradient(bench):
    output = make(bench, "fig7")
    for axis in output.figures["fig7"].axes:
        truth = np.array([bar.get_height() for bar in axis.patches[5:10]])
        downward = [note.xyann[1] > note.xy[1] for note in axis.texts]
        assert downward == [value > 1 / 5 for value in truth]
    lines = [line for line in output.figures["fig7-eq16"].axes[0].get_lines() if len(line.get_xdata()) > 2]
    for line, alpha in zip(lines, (0.1, 0.2, 0.3), strict=True):
        np.testing.assert_allclose(line.get_ydata(), alpha * (1 - line.get_xdata()) - alpha / 5, atol=1e-12)
    assert [float(x) for x in re.findall(r"[+-]0\.\d+", output.notes[1])] == [0.132, 0.01, 0.032, 0.14]


@pytest.mark.parametrize("name", ["fig13", "fig14", "fig17", "fig9"])
def test_the_largest_logit_given_the_msp(bench, name):
    output = make(bench, name)
    part = "fig9-right" if name == "fig9" else name
    rows = output.tables[f"{part}-numbers"].rows
    for axis, method, row in zip(output.figures[part].axes, (CE, LS), rows, strict=True):
        logits, msp, correct = slow_sc.judged(bench, method, 0)
        for line, wanted in zip(axis.get_lines(), (True, False), strict=True):
            for x, mean in zip(line.get_xdata(), line.get_ydata(), strict=True):
                inside = [
                    max(z) for z, p, c in zip(logits, msp, correct, strict=True) if abs(p - x) <= 0.025 and c == wanted
                ]
                assert mean == pytest.approx(np.mean(inside), rel=1e-6) if len(inside) >= 10 else math.isnan(mean)
        gaps = [_gap(*slow_sc.judged(bench, method, seed)) for seed in (0, 1)]
        gaps = [gap for gap in gaps if not math.isnan(gap)]
        assert (row.cells[0] is None) == (not gaps)
        if gaps:
            assert row.cells[0].mean == pytest.approx(np.mean(gaps), rel=1e-6)


def _gap(logits, msp, correct):
    """Mean over windows side by side of the largest logit, wrong minus right, where both have ten."""
    gaps = []
    for k in range(20):
        inside = (msp >= k / 20) & (msp <= (k + 1) / 20)
        tops = {side: logits.max(1)[inside & (correct == side)] for side in (True, False)}
        if min(map(len, tops.values())) >= 10:
            gaps.append(np.mean(tops[False]) - np.mean(tops[True]))
    return np.mean(gaps) if gaps else math.nan


def test_sorted_logits(bench):
    output = make(bench, "fig18")
    logits, _, _ = slow_sc.judged(bench, LS, 0)
    ordered = np.array([sorted(row, reverse=True) for row in logits])
    for axis, values in zip(output.figures["fig18"].axes, (ordered, ordered**5, np.exp(ordered)), strict=True):
        np.testing.assert_allclose(axis.get_lines()[0].get_ydata(), values.mean(0), rtol=1e-6)
    sums = np.exp(ordered).mean(0)
    first = next(k for k in range(1, 17) if sums[:k].sum() >= 0.95 * sums.sum())
    assert f"{first} of 16" in output.notes[1]


def test_the_normalised_largest_logit_given_the_largest(bench):
    output = make(bench, "fig19")
    rows = {line.method: line.cells for line in output.tables["fig19-numbers"].rows}
    for k, centre in enumerate((False, True)):
        slopes = {}
        for seed in (0, 1):
            logits, msp, _ = slow_sc.judged(bench, LS, seed)
            score, top = (
                slow_sc.normalised(logits, slow_sc.best_power(bench, LS, seed, centre)[0], centre),
                logits.max(1),
            )
            for low in (0.2, 0.4, 0.6, 0.8):
                inside = (msp > low) & (msp <= low + 0.2 + 1e-9)
                if inside.sum() > 2:
                    near = inside & (abs(top - top[inside].mean()) <= 2 * top[inside].std())
                    slopes.setdefault(low, []).append(np.polyfit(top[near], score[near], 1)[0])
        for low, values in slopes.items():
            assert rows[f"MSP {low:g} to {low + 0.2:g}"][k].mean == pytest.approx(np.mean(values), rel=1e-5)


def test_runs_of_other_methods_are_refused(bench):
    with pytest.raises(ValueError, match=facts("'ls, alpha=0.9'", "ce, ls")):
        rankings.smoothing_runs(bench, "sc_imagenet_resnet50", methods=["ls, alpha=0.9"])


def test_the_mean_rank_of_wrong_pixels_is_within_their_image():
    random = np.random.default_rng(0)
    image, correct = random.integers(0, 4, 90), random.random(90) < 0.7
    score = np.round(random.random(90), 1)  # with ties
    ranks = [
        np.mean([score[j] > score[i] for j in range(90) if image[j] == image[i]])
        for i in range(90) if not correct[i]
    ]  # fmt: skip
    pixels = DrawnPixels(image, correct, {"confidence": score})
    assert mean_wrong_rank(pixels, "confidence") == pytest.approx(np.mean(ranks))


def test_the_image_shown_is_the_first_with_enough_errors(monkeypatch):
    right = {"a": [1, 1, 1, 0, 0, 1], "b": [1, 1, 0, 1, 0, 0]}  # images 0, 0, 1, 1, 2, 2
    image = np.repeat([0, 1, 2], 2)
    monkeypatch.setattr(
        "calibrant.experiments.papers.rankings.read_drawn_pixels",
        lambda runs, method, seed: DrawnPixels(image, np.array(right[method], bool), {}),
    )
    assert choose_image(None, ("a", "b"), 0) == 1
    assert choose_image(None, ("a",), 0) == 1
    right |= {"a": [0, 0, 1, 0, 0, 1], "b": [0, 1, 1, 1, 0, 1]}
    assert choose_image(None, ("a", "b"), 0) == 2  # of the first image one method gets all wrong
    right["a"] = [1, 1, 1, 1, 1, 1]
    assert choose_image(None, ("a",), 0) == 0  # nobody has any: still one is shown


def test_figure_10_has_both_networks_and_both_rankings(mask_runs, tmp_path, monkeypatch):
    monkeypatch.setattr(workbench, "MASKS", MASKS)
    runs = [mask_runs["ce"], mask_runs["ls, alpha=0.2"]]
    made = find_item("sc.fig10").make(Workbench(tmp_path / "bench", small=True, runs=runs))
    titles = [axis.get_title(loc="left") for axis in made.figures["fig10"].axes]
    assert [title.partition(":")[0] for title in titles if ":" in title] == ["CE", "LS, alpha = 0.2"] * 2
    (ce, ls) = made.tables["fig10-numbers"].rows
    assert all(0 < cell.mean < 1 for line in (ce, ls) for cell in line.cells)
