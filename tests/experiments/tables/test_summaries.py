"""Tables against NumPy, and the ranks of LR Table 3."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.tables import Column, average_ranks, expected, heads, paired, sensitivity, summary, text
from calibrant.experiments.tables.summaries import columns_of, recipe_table
from calibrant.recipes import FOLDER as RECIPES
from calibrant.report.text import MINUS
from calibrant.training import check_recipe
from calibrant.training.recipe import Expected, Recipe, load
from tests.helpers.errors import facts
from tests.helpers.result_rows import SMALL, of, row


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


def test_reference_and_holm():
    rng = np.random.default_rng(3)
    base = rng.normal(0.05, 0.01, 6)
    other = {
        "a": base - 0.03 + rng.normal(0, 0.002, 6),
        "b": base + rng.normal(0, 0.01, 6),
        "c": base + 0.02 + rng.normal(0, 0.001, 6),
    }
    values = {"ce": base} | other
    table = summary(of(values), ["ece"], reference="ce")
    p = {name: stats.ttest_rel(v, base).pvalue for name, v in other.items()}
    passed = {name for name, value in p.items() if 3 * value < 0.05}
    assert passed == {"a", "c"}  # under Bonferroni's limit, so under Holm's; b is nowhere near
    assert p["b"] > 0.05
    assert [line.cells[0].change for line in table.rows] == ["", "better", "", "worse"]
    assert text(table)[1][1].endswith(" •")


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
