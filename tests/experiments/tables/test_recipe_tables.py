import math

import pytest

from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.tables.cells import Column
from calibrant.experiments.tables.recipe_tables import columns_of, recipe_table
from calibrant.training import check_recipe

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
    assert [line.method for line in table.rows] == ["CE", "CE+TS", "LS"]
    ce, scaled, missing = table.rows
    assert [round(cell.mean, 6) for cell in ce.cells[:2]] == [0.85, 0.15]
    assert scaled.cells[1].mean == pytest.approx(0.04)
    assert scaled.cells[1].remark == "T 2.5"
    assert scaled.cells[0].remark == ""  # a temperature changes no accuracy
    assert missing.cells == (None, None, None)
    assert ce.cells[2] is None
    assert "2 seeds" in table.note
    assert "temperature" in table.note


def test_columns_are_asked_for_after_every_repair():
    asked = columns_of(check_recipe(RECIPE, "here"))
    repairs = {column.posthoc for column in asked}
    assert repairs == {"none", "temperature-mbls"}
    assert Column("nll", "shifted", "temperature-mbls") in asked
    assert Column("aece_10") in asked


def test_without_runs_there_is_no_row():
    assert recipe_table(Results([]), check_recipe(RECIPE, "here"), "3").rows == ()


def test_a_table_names_methods_of_the_recipe():
    broken = RECIPE | {"tables": {"3": {"rows": ["cee"], "columns": ["ece"]}}}
    with pytest.raises(
        ValueError, match="table '3' has a row 'cee' that is not a method of the recipe; did you mean 'ce'"
    ):
        check_recipe(broken, "here")
    with pytest.raises(ValueError, match="repairs 'x', which is not a method with runs of its own"):
        check_recipe(RECIPE | {"methods": {"y": {"of": "x", "repair": "temperature"}}, "tables": {}}, "here")


def test_a_row_that_says_what_it_is_tuned_for_shows_nothing_else():
    recipe = check_recipe(RECIPE | {"tables": {"1": {"rows": ["ce", "ls, tuned for ece"], "columns": ["ece"]}}}, "here")
    untuned = [row._replace(settings='{"alpha": 0.1}') for row in rows("ls", "none", "ece", [0.3])]
    table = recipe_table(Results([*rows("ce", "none", "ece", [0.2]), *untuned]), recipe, "1")
    assert [line.cells[0] and line.cells[0].mean for line in table.rows] == [0.2, None]
    tuned = [row._replace(tuned_for="ece") for row in untuned]
    table = recipe_table(Results([*rows("ce", "none", "ece", [0.2]), *untuned, *tuned]), recipe, "1")
    assert [line.cells[0].mean for line in table.rows] == [0.2, 0.3]
