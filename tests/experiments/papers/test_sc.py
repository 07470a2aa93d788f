import re
from types import SimpleNamespace

import numpy as np
import pytest

from calibrant.experiments.papers import Workbench, find_item, items, sc
from tests.experiments.papers import slow_sc

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
    words = next(note for note in output.notes if note.startswith("AURC of CE"))
    higher = [sum(b > a for a, b in zip(areas["ce"], areas[m], strict=True)) for m in list(areas)[1:]]
    assert re.findall(r"higher in (\d) of 2 runs", words) == [str(count) for count in higher]


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
    chosen = []
    for label in ("CE", "LS, alpha = 0.2"):
        logits, msp, correct = slow_sc.judged(bench, LABELS[label], 0)
        slow_sc.assert_curve(lines[f"{label}, MSP"], msp, correct)
        for word, centre in (("not centred", False), ("centred", True)):
            p, _ = slow_sc.best_power(bench, LABELS[label], 0, centre)
            slow_sc.assert_curve(lines[f"{label}, {word}"], slow_sc.normalised(logits, p, centre), correct)
        assert len({lines[f"{label}, {word}"].get_color() for word in ("MSP", "not centred", "centred")}) == 1
        chosen.append([_winner(bench, LABELS[label], seed) for seed in (0, 1)])
    for names, words in zip(
        chosen, [note for note in output.notes if "the validation data choose" in note], strict=True
    ):
        for winner in names:
            assert f"{winner} in {names.count(winner)} of 2 runs" in words


def _winner(bench, method, seed):
    """The least AURC on validation data: a reading's, or the MSP's where it is no higher."""
    _, msp, correct = slow_sc.judged(bench, method, seed, "val")
    areas = {}
    for word, centre in (("centred", True), ("not centred", False)):
        p, least = slow_sc.best_power(bench, method, seed, centre)
        areas[f"the normalised largest logit, {word}, p = {p}"] = least
    best = min(areas, key=areas.get)
    return best if areas[best] < slow_sc.area(msp, correct) - 1e-9 else "the MSP (no p ranks better)"


def test_only_cityscapes_needs_a_word_about_pixels(bench):
    assert any("Cityscapes" in note for note in make(bench, "fig12").notes)
    assert not any("Cityscapes" in note for note in make(bench, "fig16").notes)


def test_a_shifted_set_is_asked_for_before_anything_is_trained(tmp_path):
    with pytest.raises(ValueError, match=r"calibrant compare sc_imagenet_vit_s16 --set data.also.sketch.path=DIR"):
        make(Workbench(tmp_path, data="imagenet"), "fig11")
    assert not list(tmp_path.iterdir())


def test_runs_that_rise_and_fall_are_counted():
    assert sc.count_words([1.0, 2.0, 3.0], [1.5, 2.0, 2.5], "higher") == "higher in 1 of 3 runs"
    assert sc.count_words([1.0, 2.0, 3.0], [0.5, 1.0, 3.0], "lower") == "lower in 2 of 3 runs"


def test_what_won_is_said_with_its_reading():
    norms = [SimpleNamespace(p_=p, centre=c) for p, c in ((3, True), (3, True), (None, True), (4, False))]
    assert sc.winner_words(norms) == (
        "the normalised largest logit, centred, p = 3 in 2 of 4 runs; the MSP (no p ranks better) in 1 of 4 runs; "
        "the normalised largest logit, not centred, p = 4 in 1 of 4 runs"
    )


def test_the_better_reading_is_said():
    pairs = ((0.1, 0.2), (0.3, 0.2), (0.1, 0.15))
    norms = [{True: SimpleNamespace(area=a), False: SimpleNamespace(area=b)} for a, b in pairs]
    sets = [SimpleNamespace(norms=part) for part in norms]
    assert all(fact in sc.reading_words(sets) for fact in ("that are centred", "2 of 3 runs"))
    assert "that are not centred" in sc.reading_words(sets[1:2])
    assert "centred" not in sc.reading_words(sets[:2])  # one run each


def test_runs_without_a_shifted_set_are_refused(tmp_path):
    runs = SimpleNamespace(folders={"ce": {0: tmp_path}})
    with pytest.raises(ValueError, match="the runs have neither of"):
        sc.shifted_name(runs)
