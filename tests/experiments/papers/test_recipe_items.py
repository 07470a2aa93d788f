import pytest

from calibrant.experiments.papers import items

RECIPE = """
paper = "ACLS"
[data]
layout = "cifar-10"
[model]
name = "resnet50"
[methods.ce]
label = "CE"
[methods.ls]
label = "LS"
loss = { name = "ls", alpha = 0.3 }
[tables.3]
rows = ["ce", "ls"]
columns = ["accuracy", "ece_20"]
[[expected]]
method = "ls"
values = { accuracy = 0.5 }
"""


def test_a_table_stands_beside_the_printed_numbers(bench, tmp_path):
    from calibrant.experiments.papers.recipe_items import tables_beside

    recipe = tmp_path / "paper.toml"
    recipe.write_text(RECIPE)
    made = tables_beside(bench, [str(recipe), "never read in small"], "3").tables
    assert list(made) == ["table3", "table3-beside"]
    assert [line.method for line in made["table3"].rows] == ["CE", "LS"]
    (line,) = made["table3-beside"].rows
    paper, ours, difference = line.cells
    assert paper.mean == 0.5
    assert ours.runs == 2
    assert difference.mean == pytest.approx(ours.mean - 0.5)
    assert items()["acls.table3"].recipes
