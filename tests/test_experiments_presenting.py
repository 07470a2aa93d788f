"""References, paired tests, methods without numbers, and what a comparison writes. Oracles: scipy, values by hand."""

import csv as csv_files
import io
import json
import math

import numpy as np
import pytest
from scipy import stats

from calibrant.experiments import Comparison, Contender, Failure, Results, Study, tables, write
from calibrant.experiments.labels import check_reference
from calibrant.experiments.page import document
from calibrant.experiments.tables import Column, average_ranks, differences, notes, paired, summary, text
from calibrant.report.text import DASH, MINUS
from calibrant.training.recipe import check_recipe
from tests.result_rows import SMALL, of, row

RNG = np.random.default_rng(5)
CE = RNG.normal(0.05, 0.004, 5)
LS = {"ece": CE - 0.02 + RNG.normal(0, 0.001, 5), "accuracy": CE + 0.03 + RNG.normal(0, 0.001, 5)}
LR = {"ece": LS["ece"] + (-1.0) ** np.arange(5) / 100, "accuracy": CE + 0.005 + RNG.normal(0, 0.001, 5)}


def two_targets():
    """ce has nothing to tune; ls and lr have other settings for each target; mbls the same for both."""
    results = Results()
    for k, target in enumerate(("ece", "accuracy")):
        results += of({"ce": CE}, tuned_for=target)
        results += of({"ls": LS[target]}, tuned_for=target, settings={"alpha": 0.1 + k})
        results += of({"lr": LR[target]}, tuned_for=target, settings={"alpha": 0.1 + k})
        results += of({"mbls": CE + 0.01 + 0.001 * np.arange(5)}, tuned_for=target, settings={"margin": 6})
    for method in ("ls", "lr", "mbls"):
        results += of({method: [0.1]}, stage="search", set="val", settings={"alpha": 0.1})
    return results


def changes(table, k=0):
    return {(line.method, line.tuned_for): line.cells[k].change for line in table.rows}


# --- rows of the same runs --------------------------------------------------------------------------------------------


def test_tables_of_what_lies_on_disk_are_those_of_the_sweep(tmp_path):
    """Numbers that are none are read back as others, and are the same all the same."""
    two_targets().save(tmp_path)
    assert summary(Results.load(tmp_path), ["ece"], ranks=True) == summary(two_targets(), ["ece"], ranks=True)


def test_rows_of_the_same_runs_are_one_row():
    table = summary(two_targets(), ["ece"], ranks=True)
    assert [(line.method, line.tuned_for) for line in table.rows] == [
        ("ce", ""), ("ls", "ece"), ("ls", "accuracy"), ("lr", "ece"), ("lr", "accuracy"), ("mbls", "ece and accuracy"),
    ]  # fmt: skip
    means = [np.mean(v) for v in (CE, LS["ece"], LS["accuracy"], LR["ece"], LR["accuracy"], CE + 0.012)]
    assert [line.cells[1].mean for line in table.rows] == stats.rankdata(means).tolist()  # six, not eight
    one = summary(two_targets(), ["ece"], tuned_for="accuracy")
    assert [(line.method, line.tuned_for) for line in one.rows][-1] == ("mbls", "accuracy")
    # As a label it is no longer open which of the two is meant.
    assert paired(two_targets(), "mbls", "ce", "ece").mean == pytest.approx(0.012)


# --- references -------------------------------------------------------------------------------------------------------


def test_a_reference_that_was_tuned_is_compared_by_target():
    table = differences(two_targets(), "ls", ["ece"])
    others = {
        ("ce", "ece"): CE - LS["ece"],
        ("ce", "accuracy"): CE - LS["accuracy"],
        ("lr", "ece"): LR["ece"] - LS["ece"],
        ("lr", "accuracy"): LR["accuracy"] - LS["accuracy"],
        ("mbls", "ece"): CE + 0.01 + 0.001 * np.arange(5) - LS["ece"],
        ("mbls", "accuracy"): CE + 0.01 + 0.001 * np.arange(5) - LS["accuracy"],
    }
    assert [(line.method, line.tuned_for) for line in table.rows] == list(others)
    for line, gaps in zip(table.rows, others.values(), strict=True):
        assert line.cells[0].mean == pytest.approx(gaps.mean(), rel=1e-12)
        assert line.cells[2].mean == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue, rel=1e-9)
    assert "ls tuned for the same" in table.note
    marks = changes(summary(two_targets(), ["ece"], reference="ls"))
    assert marks[("ls", "ece")] == marks[("ls", "accuracy")] == marks[("lr", "ece")] == ""
    assert marks[("lr", "accuracy")] == "better"
    assert marks[("ce", "")] == ""  # worse than the one and better than the other
    same = differences(two_targets(), "ce", ["ece"])
    assert [(line.method, line.tuned_for) for line in same.rows] == [
        ("ls", "ece"), ("ls", "accuracy"), ("lr", "ece"), ("lr", "accuracy"), ("mbls", "ece and accuracy"),
    ]  # fmt: skip


def test_a_reference_of_one_target_serves_all():
    table = differences(two_targets(), "ls, tuned for ece", ["ece"])
    found = {(line.method, line.tuned_for): line.cells[0].mean for line in table.rows}
    assert found[("ls", "accuracy")] == pytest.approx((LS["accuracy"] - LS["ece"]).mean())
    assert found[("ce", "")] == pytest.approx((CE - LS["ece"]).mean())
    assert ("ls", "ece") not in found
    lacking = Results(r for r in two_targets() if (r.method, r.tuned_for) != ("ls", "accuracy"))
    rest = differences(lacking, "ls", ["ece"])  # nothing of the other target to compare with
    assert {(line.method, line.tuned_for) for line in rest.rows} == {("ce", ""), ("lr", "ece"), ("mbls", "ece")}


@pytest.mark.parametrize("reference", ["mbls", "mbls, tuned for ece", "ls, tuned for nll"])
def test_a_reference_without_numbers_is_said(reference):
    results = of({"ce": CE}) + of({"ls": LS["ece"]}, tuned_for="ece", settings={"alpha": 0.1})
    table = summary(results, ["ece"], reference=reference)
    assert set(changes(table).values()) == {""}
    assert f"Nothing is tested against {reference}: it has no numbers here." in table.note
    assert differences(results, reference, ["ece"]).rows == ()


def test_references_are_checked_before_anything_runs():
    labels = ["ce", "ls", "acls:margin=6", "als+context"]
    for good in ("ce", "ls, tuned for ece", "ce + temperature", "als + context", "acls:margin=6", "hard"):
        check_reference(good, labels, ["ece"])
    for wrong, words in {
        "cee": r"no method here is called 'cee'.*did you mean 'ce'\? There are ce, ls, acls:margin=6, als\+context$",
        "ls tuned for ece": "did you mean 'ls, tuned for ece'",
        "qqqq": r"which is to be the reference: there are ce, ls",
        "ls, tuned for nll": "'ls, tuned for nll' is not there: nothing is tuned for nll, only for ece$",
    }.items():
        with pytest.raises(ValueError, match=words) as error:
            check_reference(wrong, iter(labels), ["ece"])
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="nothing is tuned for ece, nor for anything else"):
        check_reference("ce, tuned for ece", ["ce"], [])


# --- tests ------------------------------------------------------------------------------------------------------------


def test_no_marks_of_two_seeds_nor_of_one_difference():
    two = summary(of({"ce": (0.1, 0.2), "ls": (0.05, 0.1500001)}), ["ece"], reference="ce")
    assert stats.ttest_rel((0.05, 0.1500001), (0.1, 0.2)).pvalue < 0.001
    assert set(changes(two).values()) == {""}
    assert "Nothing is tested against ce: that takes 3 seeds." in two.note
    base = np.array([0.91, 0.93, 0.94, 0.92])  # a hundredth more each, up to the last digits
    same = of({"ce": base, "ls": base + 0.01, "lr": base + np.array([0.02, 0.021, 0.019, 0.02])}, "accuracy")
    assert changes(summary(same, ["accuracy"], reference="ce")) == {
        ("ce", ""): "",
        ("ls", ""): "",
        ("lr", ""): "better",
    }
    lines = text(differences(same, "ce", ["accuracy"]))
    assert lines[0] == ["ls", "Accuracy (%)", "+1.00", "[+1.00, +1.00]", DASH, DASH, "0.1250", "4 of 4"]
    p = stats.ttest_1samp((0.02, 0.021, 0.019, 0.02), 0).pvalue
    assert lines[1][4:6] == ["<0.0001"] * 2 if p < 1e-4 else [f"{p:.4f}"] * 2  # one test: nothing to correct


def test_paired_table_against_scipy_and_holm_by_hand():
    values = {"ce": CE, "a": CE - 0.01 + RNG.normal(0, 0.003, 5), "b": CE + RNG.normal(0, 0.01, 5),
              "c": CE + 0.01 + RNG.normal(0, 0.004, 5)}  # fmt: skip
    nll = {name: 10 * v for name, v in values.items() if name != "c"}
    table = differences(of(values) + of(nll, "nll"), "ce", ["ece", "nll"], title="")
    assert [(line.method, line.metric) for line in table.rows] == [
        ("a", "ece"), ("b", "ece"), ("c", "ece"), ("a", "nll"), ("b", "nll"),
    ]  # fmt: skip
    tests = [stats.ttest_rel(values[name], CE) for name in "abc"]
    first, second, third = sorted(t.pvalue for t in tests)
    by_hand = {first: 3 * first, second: max(3 * first, 2 * second), third: max(3 * first, 2 * second, third)}
    for line, test, name in zip(table.rows, tests, "abc", strict=False):
        gap, interval, t, holm, wilcoxon, wins = line.cells
        ends = test.confidence_interval(0.95)
        assert gap.mean == pytest.approx((values[name] - CE).mean(), rel=1e-12)
        assert (interval.mean, interval.high) == pytest.approx((ends.low, ends.high), rel=1e-9)
        assert t.mean == pytest.approx(test.pvalue, rel=1e-9)
        assert holm.mean == pytest.approx(min(1, by_hand[test.pvalue]), rel=1e-9)
        assert wilcoxon.mean == pytest.approx(stats.wilcoxon(values[name], CE, method="exact").pvalue)
        assert (wins.mean, wins.runs) == ((values[name] < CE).sum(), 5)
        assert bool(gap.change) == (holm.mean < 0.05)
    marked = {line.method: line.cells[0].change for line in summary(of(values), ["ece"], reference="ce").rows}
    assert {line.method: line.cells[0].change for line in table.rows[:3]} | {"ce": ""} == marked
    lines = list(csv_files.DictReader(io.StringIO(tables.csv(table))))
    assert float(lines[0]["95% interval high"]) == table.rows[0].cells[1].high
    assert (lines[0]["Measure"], lines[0]["Better in seeds"]) == ("ece", "5")
    assert tables.markdown(table).count("\n| ") == 5
    assert f"[{MINUS}" in tables.html(table)


def test_one_seed_has_a_difference_and_no_more():
    (line,) = text(differences(of({"ce": [0.04], "ls": [0.03]}), "ce", ["ece"]))
    assert line == ["ls", "ECE (%)", f"{MINUS}1.00", DASH, DASH, DASH, DASH, "1 of 1"]


# --- methods without numbers ------------------------------------------------------------------------------------------


def test_methods_without_numbers_have_a_row_of_dashes():
    table = summary(SMALL, ["ece"], ranks=True, missing=[("mbls", ""), ("lr", "nll")])
    assert text(table)[-2:] == [["mbls", "", DASH, DASH], ["lr", "nll", DASH, DASH]]
    assert [line.cells[0].runs for line in table.rows[-2:]] == [0, 0]
    assert "0 runs of mbls and lr tuned for nll have numbers." in table.note
    without = summary(SMALL, ["ece"], ranks=True)
    assert table.rows[:3] == without.rows
    assert tables.csv(table).splitlines()[-1] == "lr,nll,,,0,,0"
    ranks = average_ranks(SMALL, ["ece"], missing=["mbls"])
    assert text(ranks)[-1] == ["mbls", DASH]
    assert [line.cells[0].mean for line in ranks.rows[:3]] == [3, 2, 1]
    assert DASH not in tables.latex(table)


# --- ranks, notes, directions -----------------------------------------------------------------------------------------


def test_ranks_of_one_target_are_those_of_the_whole_table():
    whole = average_ranks(two_targets(), ["ece"])
    for k, target in enumerate(("ece", "accuracy", "")):
        part = average_ranks(two_targets(), ["ece"], target=target)
        assert [c.head for c in part.columns] == ["ECE ↓"]
        assert [line.cells[0] for line in part.rows] == [line.cells[k] for line in whole.rows]
    assert [line.method for line in whole.rows] == ["ce", "ls", "lr", "mbls"]
    with pytest.raises(ValueError, match="nothing was tuned for 'nll', only for ece, accuracy"):
        average_ranks(two_targets(), ["ece"], target="nll")


def test_notes_for_the_terminal_say_what_its_marks_mean():
    found = notes(summary(SMALL, ["ece"], reference="ce", ranks=True))
    assert found[:2] == [
        "Mean ± standard deviation over 3 seeds, or over n where a cell says so.",
        "¹ best and ² second of a column.",
    ]
    assert found[2].startswith("• better and ∘ worse than ce (paired t-test over the seeds, p < 0.05")
    assert found[3].startswith("Mean rank: ")
    assert notes(summary(Results(), ["ece"])) == []


def test_a_column_may_have_another_better_end():
    results = of({"a": [0.5], "b": [0.6]}, "mean_confidence") + of({"a": [0.5], "b": [0.6]}, "accuracy")
    columns = [Column("accuracy", direction="none"), Column("mean_confidence", direction="low")]
    assert text(summary(results, columns)) == [["a", "50.00", "¹ 50.00"], ["b", "60.00", "² 60.00"]]
    assert columns[0].head == "Accuracy (%)"


# --- files and the page -----------------------------------------------------------------------------------------------

RECIPE = check_recipe(
    {
        "title": "Made up",
        "data": {"layout": "scenes", "also": {"covered": "context-only", "other": {"options": {"shift": "texture"}}}},
        "model": {"name": "small_cnn"},
        "training": {"epochs": 1, "batch_size": 8},
        "search": {"ls": {"alpha": [0.1, 0.2]}, "mbls": {"margin": [3, 6], "strength": [0.05, 0.1]}},
    },
    "made up",
)


def made(folder, methods=("ce", "ls", "mbls", "focal"), tune=("ece", "accuracy"), seeds=(0, 1, 2), failed=("focal",)):
    """A comparison as if it had been run: ls has the same settings for both targets, mbls others."""
    chosen = {
        "ls": [{"alpha": 0.1}, {"alpha": 0.1}],
        "mbls": [{"margin": 3, "strength": 0.05}, {"margin": 6, "strength": 0.1}],
    }
    study = Study(RECIPE, {name: Contender(name, {}) for name in methods}, seeds, tune)
    rng, rows, planned = np.random.default_rng(1), {}, []
    for name in methods:
        settings = chosen.get(name, [{}, {}])
        trials = [study.trial(name, 0, s) for s in study.candidates(name)] if name in chosen and tune else []
        finals = [
            study.final(name, s, seed, t) for s, t in zip(settings, tune or ("",), strict=False) for seed in seeds
        ]
        planned += [*trials, *finals]
        for run in [*trials, *finals] if name not in failed else ():
            labels = (run.method, run.seed)
            about = {"run": run.key, "tuned_for": run.tuned_for, "stage": run.stage, "settings": run.settings}
            if (run.key, "ece") not in rows:
                _predicted(folder / "runs" / run.key, rng)
                for metric in ("accuracy", "mean_confidence", "nll", "ece", "aece", "aurc"):
                    rows[run.key, metric] = float(rng.uniform(0.1, 0.9))
            sets = ("val",) if run.stage == "search" else ("val", "test", "covered", "other")
            for metric in ("accuracy", "mean_confidence", "nll", "ece", "aece", "aurc"):
                for where in sets:
                    rows[run.key, metric, where, run.tuned_for] = row(
                        *labels, metric, rows[run.key, metric], set=where, **about
                    )
    failures = tuple(Failure(r.key, r.method, r.seed, "it broke") for r in planned if r.method in failed)
    results = Results(value for value in rows.values() if not isinstance(value, float))
    return Comparison(study, folder, tuple(planned), results, failures)


def _predicted(place, rng):
    place.mkdir(parents=True)
    np.savez(place / "test.npz", logits=rng.normal(0, 2, (40, 3)), labels=rng.integers(0, 3, 40))
    history = [{"epoch": epoch, "step": 3 * epoch, "val_accuracy": 0.5, "val_ece": 0.1} for epoch in (1, 2)]
    (place / "result.json").write_text(json.dumps({"sets": {"test": {}}, "steps": 6, "history": history}))


def test_what_is_written(tmp_path):
    comparison = made(tmp_path)
    folder = tmp_path / "tables"
    folder.mkdir()
    ours = [f"{name}.{suffix}" for name in ("set-old", "ranks-nll") for suffix in ("md", "tex", "csv", "html")]
    theirs = ["set-mine.md", "notes.md", "methods.txt", "expected.pdf"]
    for name in [*ours, *theirs, "expected.tex"]:
        (folder / name).write_text("x")
    (folder / "expected.md").mkdir()
    found = write(comparison, reference="ce", expected=True)
    assert list(found) == [
        "methods", "repairs", "set-covered", "set-other", "ranks", "ranks-ece", "ranks-accuracy", "paired",
    ]  # fmt: skip
    written = {f"{name}.{suffix}" for name in found for suffix in ("md", "tex", "csv", "html")}
    assert {path.name for path in folder.iterdir()} == written | set(theirs) | {"expected.md"}
    for name in written:
        content = (folder / name).read_text(encoding="utf-8")
        assert content.endswith("\n")
        assert not content.endswith("\n\n")
    assert [(line.method, line.tuned_for) for line in found["methods"].rows] == [
        ("ce", ""), ("ls", "ece and accuracy"), ("mbls", "ece"), ("mbls", "accuracy"), ("focal", ""),
    ]  # fmt: skip
    assert all("0 runs of focal have numbers." in table.note for name, table in found.items() if name != "paired")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Differences from ce" in page
    covered = found["set-covered"]
    assert [column.better for column in covered.columns] == ["none", "low", "none", "none"]
    assert [column.better for column in found["set-other"].columns] == ["high", "none", "low", "low"]
    assert not any(line.cells[0].best for line in covered.rows)
    assert sum(line.cells[1].best for line in covered.rows) == 1
    assert "No object is in sight" in covered.note


@pytest.mark.parametrize("reference", ["focal", "ls", "ls, tuned for ece", "mbls", "nobody", None])
def test_any_reference_leaves_tables_and_a_page(tmp_path, reference):
    found = write(made(tmp_path), reference=reference)
    silent = reference in ("focal", "nobody")
    assert ("paired" in found) == (not silent and reference is not None)
    assert (f"Nothing is tested against {reference}: it has no numbers here." in found["methods"].note) == silent
    assert (tmp_path / "index.html").exists()


def test_the_page_has_every_run_once_and_the_tables_numbers(tmp_path):
    comparison = made(tmp_path)
    found = write(comparison)
    page = document(comparison, found)
    names = ["ce", "ls, tuned for ece and accuracy", "mbls, tuned for ece", "mbls, tuned for accuracy"]
    for key in ("reliability", "curves", "scatter"):
        assert [part["name"] for part in page[key]] == names
    ece = [column.metric for column in found["methods"].columns].index("ece")
    for part, line in zip(page["reliability"], found["methods"].rows, strict=False):
        assert part["ece"] == line.cells[ece].mean
        assert sum(part["bins"]["count"]) == 3 * 40
    assert [(part["name"], part["parameter"], part["metric"]) for part in page["ablation"]] == [
        ("ls", "alpha", "val_ece"), ("mbls", "margin", "val_ece"), ("mbls", "strength", "val_ece"),
    ]  # fmt: skip
    searched = comparison.results.where(stage="search", method="mbls", set="val", metric="ece")
    best = min(searched, key=lambda r: r.value)
    assert any(math.isclose(p[1], best.value) for p in page["ablation"][1]["points"])
    assert {p[3] for part in page["ablation"] for p in part["points"]} == {1}
    assert page["lead"][0] == "4 methods, 3 seeds: 18 runs, 3 without numbers."
    text_of = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "standard deviation to either side" not in text_of  # of one run there is none
    assert "Numbers are of the held-out data" in text_of
    assert "ECE (validation)" in text_of


def test_one_of_anything_is_singular(tmp_path):
    comparison = made(tmp_path, ("ce",), (), (4,), ())
    assert document(comparison, write(comparison, reference="ce"))["lead"] == ["1 method, 1 seed: 1 run."]
    assert list(write(comparison, reference="ce")) == ["methods", "repairs", "set-covered", "set-other", "ranks"]
