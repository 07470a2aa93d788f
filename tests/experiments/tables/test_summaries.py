"""Tables against NumPy, paired tests against SciPy and by hand, the ranks of LR Table 3."""

import csv as csv_files
import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calibrant.experiments import tables
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.spaces import short_title
from calibrant.experiments.tables import (
    Column,
    average_ranks,
    differences,
    expected,
    heads,
    paired,
    sensitivity,
    summary,
    text,
)
from calibrant.experiments.tables.labels import check_reference
from calibrant.experiments.tables.summaries import columns_of, recipe_table
from calibrant.recipes import FOLDER as RECIPES
from calibrant.report.text import DASH, MINUS
from calibrant.training import check_recipe
from calibrant.training.recipe import Expected, Recipe, load
from tests.helpers.errors import facts
from tests.helpers.result_rows import CE as BASE
from tests.helpers.result_rows import LR, LS, SMALL, of, row, two_targets


def test_summary_against_numpy():
    table = summary(SMALL + of({"ce": (0.9, 0.8, 0.85), "ls": (0.91, 0.7, 0.9)}, "accuracy"), ["accuracy", "ece"])
    assert [line.method for line in table.rows] == ["ce", "ls", "acls"]
    cell = table.rows[1].cells[1]
    assert cell.mean == pytest.approx(np.mean([0.02, 0.02, 0.04]), rel=1e-15)
    assert cell.std == pytest.approx(np.std([0.02, 0.02, 0.04], ddof=1), rel=1e-14)
    assert cell.runs == 3
    assert table.rows[2].cells[0] is None
    assert [(line.cells[1].best, line.cells[1].second) for line in table.rows] == [
        (False, False),
        (False, True),
        (True, False),
    ]
    assert table.rows[0].cells[0].best  # higher is better
    assert text(table) == [
        ["CE", "¹ 85.00 ± 5.00", "5.00 ± 1.00"],
        ["LS", "² 83.67 ± 11.85", "² 2.67 ± 1.15"],
        ["ACLS", "", "¹ 2.00 ± 1.41 (n=2)"],
    ]
    assert heads(table) == ["Method", "Accuracy (%) ↑", "ECE (%) ↓"]
    assert "3 seeds" in table.note


def test_labels_say_more_than_a_method():
    results = (
        of({"ce": (0.04, 0.05)}, tuned_for="accuracy")
        + of({"ce": (0.04, 0.05)}, tuned_for="ece")
        + of({"ce": (0.01, 0.03)}, tuned_for="ece", posthoc="temperature", parameter=1.5)
        + of({"ls": (0.08, 0.1)}, tuned_for="accuracy", settings={"alpha": 0.1})
        + of({"ls": (0.02, 0.04)}, tuned_for="ece", settings={"alpha": 0.05})
        + of({"ls": (0.3,)}, stage="search", set="val", settings={"alpha": 0.1})
    )
    table = summary(results, ["ece"])
    assert [(line.method, line.tuned_for, round(line.cells[0].mean, 9)) for line in table.rows] == [
        ("ce", "", 0.045),  # nothing to tune: once
        ("ls", "accuracy", 0.09),
        ("ls", "ece", 0.03),
    ]
    chosen = summary(results, ["ece"], tuned_for="ece")
    assert [(line.method, line.tuned_for) for line in chosen.rows] == [("ce", ""), ("ls", "ece")]
    named = summary(results, ["ece"], methods=["ls, tuned for accuracy", "ls, alpha=0.05"])
    assert [(line.method, line.tuned_for) for line in named.rows] == [("ls", "accuracy"), ("ls, alpha=0.05", "ece")]
    assert paired(results, "ls, tuned for ece", "ce", "ece").mean == pytest.approx(-0.015)
    with pytest.raises(ValueError, match=facts("'ls'", "accuracy", "ece")):
        paired(results, "ls", "ce", "ece")
    with pytest.raises(ValueError, match=facts("'mbls'", "ce, ls")):
        summary(results, ["ece"], methods=["mbls"])
    with pytest.raises(ValueError, match=facts("eec")):
        summary(results, ["eec"])
    by_repair = summary(results, [Column("ece"), Column("ece", posthoc="temperature")], methods=["ce + temperature"])
    assert [cell.mean for cell in by_repair.rows[0].cells] == pytest.approx([0.02, 0.02])
    assert by_repair.columns[1].head == "ECE + temperature (%) ↓"


def test_two_settings_of_one_seed_are_an_error():
    with pytest.raises(ValueError, match=facts("'ls'", "0.1", "0.2")):
        summary(of({"ls": [0.1]}, settings={"alpha": 0.1}) + of({"ls": [0.2]}, settings={"alpha": 0.2}), ["ece"])


def lr_tables():
    """LR's Tables 1 and 2, as its recipes have them."""
    sets = {}
    for path in sorted(RECIPES.glob("lr_*.toml")):
        rows = []
        for entry in load(path).expected:
            method, _, target = entry.method.partition(", tuned for ")
            method, _, posthoc = method.partition(" + ")
            rows += [
                row(method, 0, metric, value, tuned_for=target, posthoc=posthoc or "none")
                for metric, value in entry.values.items()
            ]
        sets[path.stem] = Results(rows)
    return sets


def test_ranks_are_those_of_lr_table_3():
    sets = lr_tables()
    assert len(sets) == 8
    table = average_ranks(
        sets, ["accuracy", "ece"], ties="min", decimals=3, stand_ins={"ece": {"ce": "ce + temperature"}}
    )
    found = {line.method: [cell.mean for cell in line.cells] for line in table.rows}
    printed = {  # accuracy and ECE, tuned for accuracy, for ECE, and overall
        "ce": (1.88, 3.63, 4.13, 2.5, 3, 3.06),
        "ls": (2.75, 3.38, 1.25, 3.25, 2, 3.31),
        "ecp": (2.75, 4.25, 1.88, 4.75, 2.31, 4.5),
        "focal": (3.5, 2.25, 4.5, 2.25, 4, 2.25),
        "lr": (2.5, 1.5, 2.63, 1.63, 2.56, 1.56),
    }
    for method, ranks in printed.items():
        assert found[method][::2] == pytest.approx(ranks[::2], abs=0.0051)
        # By ECE the paper's ranks do not all follow from its own Tables 1 and 2: one rank of eight is off.
        assert found[method][1::2] == pytest.approx(ranks[1::2], abs=0.131)
    assert found["lr"] == pytest.approx(printed["lr"], abs=0.0051)
    assert {line.cells[0].runs for line in table.rows} == {8}
    assert {line.cells[-1].runs for line in table.rows} == {16}


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=2, max_size=7), st.randoms())
def test_ranks_sum_and_do_not_depend_on_the_order(values, random):
    results = Results(
        row(f"m{i}", 0, metric, v / 8)
        for i, line in enumerate(values)
        for metric, v in zip(("ece", "accuracy", "nll"), line, strict=True)
    )
    table = average_ranks(results, ["ece", "accuracy", "nll"])
    overall = {
        line.method: line.cells[-1].mean for line in summary(results, ["ece", "accuracy", "nll"], ranks=True).rows
    }
    assert overall == pytest.approx({line.method: np.mean([c.mean for c in line.cells[:3]]) for line in table.rows})
    n = len(values)
    for k, metric in enumerate(("ece", "accuracy", "nll")):
        ranks = [line.cells[k].mean for line in table.rows]
        assert sum(ranks) == n * (n + 1) / 2
        sign = -1 if metric == "accuracy" else 1
        assert ranks == stats.rankdata([sign * line[k] for line in values]).tolist()
    rows = list(results.rows)
    random.shuffle(rows)
    again = average_ranks(Results(rows), ["ece", "accuracy", "nll"])
    assert sorted(again.rows) == sorted(table.rows)


def test_ranks_of_what_is_missing():
    table = average_ranks({"x": of({"a": [0.1], "b": [0.2], "c": [0.3]}), "y": of({"b": [0.3], "c": [0.2]})}, ["ece"])
    assert {line.method: (line.cells[0].mean, line.cells[0].runs) for line in table.rows} == {
        "a": (1.0, 1),
        "b": (2.0, 2),
        "c": (2.0, 2),
    }
    assert text(table)[0][1] == "¹ 1.00 (n=1)"
    with pytest.raises(ValueError, match=facts("mean_confidence")):
        average_ranks(SMALL, ["mean_confidence"])
    with pytest.raises(ValueError, match=facts("mbls")):
        average_ranks(SMALL, ["ece"], methods=["mbls"])


def test_sensitivity():
    searched = Results(
        row("acls", seed, "ece", base + 0.01 * seed, stage="search", set="val", settings={"margin": m, "lambda1": w})
        for (m, w), base in {(6, 0.1): 0.05, (10, 0.1): 0.03, (6, 0.2): 0.04, (10, 0.2): 0.06}.items()
        for seed in (0, 1)
    )
    final = of({"acls": [0.5]}, set="val", settings={"margin": 10, "lambda1": 0.1}, tuned_for="ece")
    curve = sensitivity(searched + final, "acls", "margin", Column("ece", "val"))
    assert [p.value for p in curve] == [6, 10]
    assert [p.mean for p in curve] == pytest.approx([0.055, 0.035])  # through the best point, lambda1 = 0.1
    assert [p.std for p in curve] == pytest.approx([math.sqrt(0.00005)] * 2)
    assert [p.runs for p in curve] == [2, 2]
    other = sensitivity(searched, "acls", "margin", Column("ece", "val"), at={"lambda1": 0.2})
    assert [p.mean for p in other] == pytest.approx([0.045, 0.065])
    assert [p.mean for p in sensitivity(final, "acls", "margin", Column("ece", "val"))] == [0.5]
    assert sensitivity(searched + final, "acls", "margin", Column("ece", "val"), stage="final")[0].mean == 0.5
    short = of({"acls": [0.01, 0.01]}, set="val", stage="short", settings={"margin": 14, "lambda1": 0.1})
    assert sensitivity(searched + final + short, "acls", "margin", Column("ece", "val")) == curve
    assert sensitivity(searched, "acls", "alpha", Column("ece", "val")) == []
    assert sensitivity(searched, "acls", "margin", "ece") == []
    twice = of({"ls": (0.1, 0.2)}, tuned_for="ece", settings={"alpha": 0.1})
    twice += of({"ls": (0.1, 0.2)}, tuned_for="accuracy", settings={"alpha": 0.1})
    assert [p.runs for p in sensitivity(twice, "ls", "alpha", "ece")] == [2]


def recipe(*entries):
    plain = {"data": {"layout": "digits"}, "model": {"name": "mlp"}, "paper": "LR", "table": "Table 1"}
    return Recipe.model_validate(plain | {"expected": [Expected(**entry) for entry in entries]})


def test_expected():
    results = (
        of({"ce": (0.90, 0.92)}, "accuracy")
        + of({"ce": (0.02, 0.02)}, posthoc="temperature", parameter=1.2)
        + of({"ls": (0.05, 0.07)}, tuned_for="accuracy", settings={"alpha": 0.2})
        + of({"ls": (0.03, 0.03)}, tuned_for="ece", settings={"alpha": 0.1})
        + of({"als+context": (0.1,)}, set="context")
        + of({"ls": [0.4]}, stage="search", set="val", settings={"alpha": 0.3})
        + of({"als": [0.2]}, settings={"targets.beta": 1.0}, tuned_for="ece")
        + of({"focal": (0.05, 0.07)}, settings={"gamma": 2}, tuned_for="ece")
        + of({"focal": (0.05, 0.07)}, settings={"gamma": 2}, tuned_for="accuracy")
    )
    table = expected(
        results,
        recipe(
            {"method": "ce", "values": {"accuracy": 0.93, "ece": 0.04}},
            {"method": "ce + temperature", "values": {"ece": 0.015}, "note": "T = 1.1"},
            {"method": "ls, tuned for accuracy", "values": {"ece": 0.05}},
            {"method": "ls", "values": {"ece": 0.05}},
            {"method": "als + context", "where": "context", "values": {"ece": 0.1}},
            {"method": "ls, alpha=0.3", "where": "val", "values": {"ece": 0.3}},
            {"method": "als, beta=1", "values": {"ece": 0.2}},
            {"method": "focal, gamma=2", "values": {"ece": 0.05}},
            {"method": "als, beta=0.25", "values": {"ece": 0.2}},
            {"method": "mbls, ResNet-101", "values": {"nll": 1.5}},
            {"method": "hard", "values": {"accuracy": 0.91}},
        ),
    )
    assert heads(table) == ["Method", "Tuned for", "Set", "Measure", "Paper", "Ours", "Difference", "Note"]
    assert text(table) == [
        ["CE", "", "test", "Accuracy (%)", "93.00", "91.00 ± 1.41", f"{MINUS}2.00", ""],
        ["CE", "", "test", "ECE (%)", "4.00", "", "", ""],
        ["CE + temperature", "", "test", "ECE (%)", "1.50", "2.00 ± 0.00", "+0.50", "T = 1.1"],
        ["LS", "accuracy", "test", "ECE (%)", "5.00", "6.00 ± 1.41", "+1.00", ""],
        ["LS", "accuracy", "test", "ECE (%)", "5.00", "6.00 ± 1.41", "+1.00", ""],
        ["LS", "ece", "test", "ECE (%)", "5.00", "3.00 ± 0.00", f"{MINUS}2.00", ""],
        ["ALS + context", "", "context", "ECE (%)", "10.00", "10.00 (n=1)", "0.00", ""],
        ["LS, alpha=0.3", "", "val", "ECE (%)", "30.00", "40.00 (n=1)", "+10.00", ""],
        ["ALS, beta=1", "", "test", "ECE (%)", "20.00", "20.00 (n=1)", "0.00", ""],
        ["FL, gamma=2", "", "test", "ECE (%)", "5.00", "6.00 ± 1.41", "+1.00", ""],
        ["hard", "", "test", "Accuracy (%)", "91.00", "91.00 ± 1.41", "0.00", ""],
    ]
    assert "LR, Table 1" in table.title


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_every_recipe_finds_its_own_numbers(path):
    """Results that hold what a paper prints, under the names that comparisons use, differ from it by nothing."""
    recipe = load(path)
    rows = []
    for entry in recipe.expected:
        name, _, target = entry.method.partition(", tuned for ")
        method = recipe.methods[name]
        posthoc = method.repair or "none"
        rows += [
            row(method.of or name, 0, m, v, set=entry.where, posthoc=posthoc, tuned_for=target)
            for m, v in entry.values.items()
        ]
    table = expected(Results(dict.fromkeys(rows)), recipe)
    assert len(table.rows) == sum(len(entry.values) for entry in recipe.expected)
    assert all(line.cells[2] is not None and line.cells[2].mean == 0 for line in table.rows)


RECIPE = {
    "title": "Digits",
    "paper": "ACLS",
    "data": {"layout": "digits"},
    "model": {"name": "mlp"},
    "methods": {
        "ce": {"label": "CE"},
        "ce + temperature": {"label": "CE+TS", "of": "ce", "repair": "temperature-mbls"},
        "ls": {"label": "LS", "loss": {"name": "ls"}},
    },
    "tables": {"3": {"rows": ["ce", "ce + temperature", "ls"], "columns": ["accuracy", "ece", "nll@shifted"]}},
    "expected": [{"method": "ls", "values": {"aece_10": 0.1}}],
}


def rows(method, posthoc, metric, values, parameter=math.nan, name="test"):
    return [
        ResultRow(f"{method}{seed}", method, "{}", "", "final", seed, name, posthoc, parameter, metric, value)
        for seed, value in enumerate(values)
    ]


@pytest.fixture
def results():
    return Results([
        *rows("ce", "none", "accuracy", [0.8, 0.9]), *rows("ce", "none", "ece", [0.2, 0.1]),
        *rows("ce", "temperature-mbls", "accuracy", [0.8, 0.9], 2.5),
        *rows("ce", "temperature-mbls", "ece", [0.03, 0.05], 2.5),
    ])  # fmt: skip


def test_rows_are_as_printed_and_a_repaired_row_has_its_temperature(results):
    table = recipe_table(results, check_recipe(RECIPE, "here"), "3")
    assert [line.method for line in table.rows] == ["CE", "CE+TS"]
    ce, scaled = table.rows  # and none of "LS", which was not run
    assert [round(cell.mean, 6) for cell in ce.cells[:2]] == [0.85, 0.15]
    assert scaled.cells[1].mean == pytest.approx(0.04)
    assert scaled.cells[1].remark == "T 2.5"
    assert scaled.cells[0].remark == ""  # a temperature changes no accuracy
    assert ce.cells[2] is None
    assert recipe_table(Results([]), check_recipe(RECIPE, "here"), "3").rows == ()  # without runs


def test_columns_are_asked_for_after_every_repair():
    asked = columns_of(check_recipe(RECIPE, "here"))
    repairs = {column.posthoc for column in asked}
    assert repairs == {"none", "temperature-mbls"}
    assert Column("nll", "shifted", "temperature-mbls") in asked
    assert Column("aece_10") in asked


def test_a_table_names_methods_of_the_recipe():
    broken = RECIPE | {"tables": {"3": {"rows": ["cee"], "columns": ["ece"]}}}
    with pytest.raises(ValueError, match=facts("'3'", "'cee'", "'ce'")):
        check_recipe(broken, "here")
    with pytest.raises(ValueError, match=facts("'x'")):
        check_recipe(RECIPE | {"methods": {"y": {"of": "x", "repair": "temperature"}}, "tables": {}}, "here")


def test_a_row_that_says_what_it_is_tuned_for_shows_nothing_else():
    recipe = check_recipe(RECIPE | {"tables": {"1": {"rows": ["ce", "ls, tuned for ece"], "columns": ["ece"]}}}, "here")
    untuned = [row._replace(settings='{"alpha": 0.1}') for row in rows("ls", "none", "ece", [0.3])]
    table = recipe_table(Results([*rows("ce", "none", "ece", [0.2]), *untuned]), recipe, "1")
    assert [line.cells[0] and line.cells[0].mean for line in table.rows] == [0.2]
    tuned = [row._replace(tuned_for="ece") for row in untuned]
    table = recipe_table(Results([*rows("ce", "none", "ece", [0.2]), *untuned, *tuned]), recipe, "1")
    assert [line.cells[0].mean for line in table.rows] == [0.2, 0.3]


RNG = np.random.default_rng(5)


CE = RNG.normal(0.05, 0.004, 5)


def changes(table, k=0):
    return {(line.method, line.tuned_for): line.cells[k].change for line in table.rows}


def test_no_marks_of_two_seeds_nor_of_one_difference():
    two = summary(of({"ce": (0.1, 0.2), "ls": (0.05, 0.1500001)}), ["ece"], reference="ce")
    assert stats.ttest_rel((0.05, 0.1500001), (0.1, 0.2)).pvalue < 0.001
    assert set(changes(two).values()) == {""}
    assert "3 seeds" in two.note
    base = np.array([0.91, 0.93, 0.94, 0.92])  # a hundredth more each, up to the last digits
    same = of({"ce": base, "ls": base + 0.01, "lr": base + np.array([0.02, 0.021, 0.019, 0.02])}, "accuracy")
    assert changes(summary(same, ["accuracy"], reference="ce")) == {
        ("ce", ""): "",
        ("ls", ""): "",
        ("lr", ""): "better",
    }
    lines = text(differences(same, "ce", ["accuracy"]))
    assert lines[0] == ["LS", "Accuracy (%)", "+1.00", DASH, DASH, DASH, "0.1250", "4 of 4"]
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


@pytest.mark.parametrize(
    ("ls", "difference", "wins"),
    [([0.03], "1.00", "1 of 1"), ([0.03, 0.04], "1.00", "2 of 2"), ([0.03, 0.05], "0.50", "1 of 2")],
)
def test_one_or_two_seeds_have_a_difference_and_no_interval(ls, difference, wins):
    table = differences(of({"ce": [0.04, 0.05][: len(ls)], "ls": ls}), "ce", ["ece"])
    assert text(table) == [["LS", "ECE (%)", f"{MINUS}{difference}", wins]]


@pytest.mark.parametrize("n", [2, 5, 9, 14, 15, 40])
def test_paired_against_scipy(n):
    rng = np.random.default_rng(n)
    one, other = rng.normal(0.3, 0.1, n), rng.normal(0.33, 0.1, n)
    found = paired(of({"a": one, "b": other}), "a", "b", "ece")
    t = stats.ttest_rel(one, other)
    assert found.seeds == tuple(range(n))
    assert found.mean == pytest.approx((one - other).mean(), rel=1e-12)
    assert found.t_p == pytest.approx(t.pvalue, rel=1e-9)
    interval = t.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    exact = stats.wilcoxon(one, other, method="exact" if n <= 14 else "approx")
    assert found.wilcoxon_p == pytest.approx(exact.pvalue, rel=1e-9)
    assert found.wins == int((one < other).sum())
    assert paired(of({"a": one, "b": other}, "accuracy"), "a", "b", "accuracy").wins == int((one > other).sum())


def test_signed_ranks_with_ties_against_a_permutation_test():
    d = np.array([1.0, 1.0, -1.0, 2.0, 2.0, 3.0, 0.0])
    found = paired(of({"a": d, "b": 0 * d}), "a", "b", "ece")
    signed = d[d != 0]
    ranks = stats.rankdata(np.abs(signed))
    oracle = stats.permutation_test(
        (np.sign(signed) * ranks,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert found.wilcoxon_p == pytest.approx(oracle.pvalue)


def test_pairs_at_the_edges():
    results = of({"a": (0.1, 0.2, 0.3), "b": (0.1, 0.2), "c": (0.2, 0.3, 0.4)}) + Results([row("d", 7)])
    same = paired(results, "a", "b", "ece")
    assert (same.seeds, same.mean, same.wilcoxon_p, same.wins) == ((0, 1), 0.0, 1.0, 0)
    assert np.isnan([same.low, same.high, same.t_p]).all()  # equal differences say nothing of how seeds differ
    assert np.isnan(paired(results, "c", "a", "ece").low)  # up to their last digits
    one = paired(of({"a": [0.1], "b": [0.3]}), "a", "b", "ece")
    assert one.wins == 1
    assert math.isnan(one.low)
    assert math.isnan(one.t_p)
    with pytest.raises(ValueError, match=facts("'a'", "'d'", "seed")):
        paired(results, "a", "d", "ece")
    with pytest.raises(ValueError, match=facts("'x'", "a, b, c, d")):
        paired(results, "x", "a", "ece")


def test_rows_of_the_same_runs_are_one_row():
    table = summary(two_targets(), ["ece"], ranks=True)
    assert [(line.method, line.tuned_for) for line in table.rows] == [
        ("ce", ""), ("ls", "ece"), ("ls", "accuracy"), ("lr", "ece"), ("lr", "accuracy"), ("mbls", "ece and accuracy"),
    ]  # fmt: skip
    means = [np.mean(v) for v in (BASE, LS["ece"], LS["accuracy"], LR["ece"], LR["accuracy"], BASE + 0.012)]
    assert [line.cells[1].mean for line in table.rows] == stats.rankdata(means).tolist()  # six, not eight
    one = summary(two_targets(), ["ece"], tuned_for="accuracy")
    assert [(line.method, line.tuned_for) for line in one.rows][-1] == ("mbls", "accuracy")
    # As a label it is no longer open which of the two is meant.
    assert paired(two_targets(), "mbls", "ce", "ece").mean == pytest.approx(0.012)


def test_a_reference_that_was_tuned_is_compared_by_target():
    table = differences(two_targets(), "ls", ["ece"])
    others = {
        ("ce", "ece"): BASE - LS["ece"],
        ("ce", "accuracy"): BASE - LS["accuracy"],
        ("lr", "ece"): LR["ece"] - LS["ece"],
        ("lr", "accuracy"): LR["accuracy"] - LS["accuracy"],
        ("mbls", "ece"): BASE + 0.01 + 0.001 * np.arange(5) - LS["ece"],
        ("mbls", "accuracy"): BASE + 0.01 + 0.001 * np.arange(5) - LS["accuracy"],
    }
    assert [(line.method, line.tuned_for) for line in table.rows] == list(others)
    for line, gaps in zip(table.rows, others.values(), strict=True):
        assert line.cells[0].mean == pytest.approx(gaps.mean(), rel=1e-12)
        assert line.cells[2].mean == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue, rel=1e-9)
    assert "LS tuned for the same" in table.note
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
    assert found[("ce", "")] == pytest.approx((BASE - LS["ece"]).mean())
    assert ("ls", "ece") not in found
    lacking = Results(r for r in two_targets() if (r.method, r.tuned_for) != ("ls", "accuracy"))
    rest = differences(lacking, "ls", ["ece"])  # nothing of the other target to compare with
    assert {(line.method, line.tuned_for) for line in rest.rows} == {("ce", ""), ("lr", "ece"), ("mbls", "ece")}


@pytest.mark.parametrize("reference", ["mbls", "mbls, tuned for ece", "ls, tuned for nll"])
def test_a_reference_without_numbers_is_said(reference):
    results = of({"ce": BASE}) + of({"ls": LS["ece"]}, tuned_for="ece", settings={"alpha": 0.1})
    table = summary(results, ["ece"], reference=reference)
    assert set(changes(table).values()) == {""}
    assert short_title(reference) in table.note
    assert differences(results, reference, ["ece"]).rows == ()


def test_references_are_checked_before_anything_runs():
    labels = ["ce", "ls", "acls:margin=6", "als+context"]
    for good in ("ce", "ls, tuned for ece", "ce + temperature", "als + context", "acls:margin=6", "hard"):
        check_reference(good, labels, ["ece"])
    for wrong, words in {
        "cee": ("cee", "acls:margin=6", "'ce'"),
        "ls tuned for ece": ("'ls, tuned for ece'",),
        "qqqq": ("qqqq", "ce, ls"),
        "ls, tuned for nll": ("nll", "ece"),
    }.items():
        with pytest.raises(ValueError, match=facts(*words)):
            check_reference(wrong, iter(labels), ["ece"])
    with pytest.raises(ValueError, match=facts("ece")):
        check_reference("ce, tuned for ece", ["ce"], [])
