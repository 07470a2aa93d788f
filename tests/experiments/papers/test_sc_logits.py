import math
import re

import numpy as np
import pytest

from calibrant.data import read
from calibrant.experiments.papers import find_item
from calibrant.experiments.papers.sc_logits import gradient_by_error, mean_gap, regularisation_gradient
from tests.experiments.papers import slow_sc
from tests.experiments.papers.conftest import TINY

CE, LS = "ce", "ls, alpha=0.2"


def make(bench, name):
    return find_item(f"sc.{name}").make(bench)


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
    assert f"extremes of {len(both)} that both models get wrong" in output.notes[1]
    assert f"{surer:.1%} rank as surer with LS" in output.notes[1]


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


def test_windows_without_both_kinds_do_not_count():
    assert mean_gap(np.array([1.0, math.nan, 3.0])) == 2.0
    assert math.isnan(mean_gap(np.array([math.nan])))


def test_sorted_logits(bench):
    output = make(bench, "fig18")
    logits, _, _ = slow_sc.judged(bench, LS, 0)
    ordered = np.array([sorted(row, reverse=True) for row in logits])
    for axis, values in zip(output.figures["fig18"].axes, (ordered, ordered**5, np.exp(ordered)), strict=True):
        np.testing.assert_allclose(axis.get_lines()[0].get_ydata(), values.mean(0), rtol=1e-6)
    sums = np.exp(ordered).mean(0)
    first = next(k for k in range(1, 17) if sums[:k].sum() >= 0.95 * sums.sum())
    assert f"The largest {first} of 16 logits make up 95%" in output.notes[1]


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
