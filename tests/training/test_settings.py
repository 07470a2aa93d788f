"""Settings of a recipe: mistakes are one sentence, and what a recipe means names it."""

import pytest

from calibrant.training import load
from calibrant.training.recipe import check_recipe
from tests.helpers import digit_runs
from tests.helpers.digit_runs import DIGITS, digits
from tests.helpers.errors import facts

RECIPE = digit_runs.RECIPE


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epoch=3", facts("training.epoch", "epochs")),
        ("optimizer.rate=3", facts("optimizer", "optimiser")),
        ("training.epochs=-1", facts("training.epochs", "-1")),
        ("training.batch_size=many", facts("training.batch_size", "many")),
        ("loss.name=aclz", facts("aclz")),
        ("loss.margins=3", "loss 'acls'"),
        ("mixing={name='cutmx'}", facts("cutmx", "cutmix")),
        ("data.steps=[{step='rezise', size=3}]", facts("rezise", "resize")),
        ("schedule.name=cosin", facts("schedule.name", "constant", "cosin")),
        ("data.hold_out={fraction=0.1, count=3}", facts("per_class")),
        ("title", "name=value"),
    ],
)
def test_mistakes_in_recipes_are_one_sentence(recipe, override, message):
    with pytest.raises(ValueError, match=message) as failure:
        load(recipe, [override])
    assert "\n" not in str(failure.value)


def test_recipes_are_known_by_what_matters(recipe):
    same = [
        load(recipe),
        load(recipe, ["title=other"]),
        load(recipe, ["training.workers=2"]),
        load(recipe, ["data.path=x"]),
    ]
    assert len({r.key for r in same}) == 1
    assert load(recipe, ["loss.margin=7"]).key != same[0].key
    assert load(recipe, ["seed=1"]).key != same[0].key
    assert load(recipe, ['loss.name="ls"'], fresh_loss=True).build_loss().alpha == 0.05


def test_plain_values_make_a_recipe():
    with pytest.raises(ValueError, match=facts("model")):
        check_recipe({"data": {"layout": "digits"}}, "here")


def test_a_key_is_taken_out_by_an_empty_value(tmp_path):
    file = tmp_path / "digits.toml"
    file.write_text('[data]\nlayout = "digits"\nhold_out = {count = 100}\n[model]\nname = "mlp"\n')
    assert load(file).data.hold_out.count == 100
    assert load(file, ["data.hold_out="]).data.hold_out is None
    assert load(file, ["data.never_there="]).key == load(file).key


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"best_by": "acuracy"}}, facts("best_by", "accuracy")),
        ({"loss": {"name": "aclss"}}, facts("aclss")),
        ({"loss": {"name": "acls", "margn": 3}}, facts("margn", "margin")),
        ({"training": 3}, facts("training", "3")),
        ({"methods": {"ce": {"repair": "temperature"}}}, "a repaired method has repair and of, and changes nothing"),
        ({"methods": {"ce": {}, "t": {"of": "ce"}}}, "a repaired method has repair and of, and changes nothing"),
        ({"methods": {"t": {"of": "ce", "repair": "temperature"}}}, facts("ce")),
        ({"methods": {"ce": {}}, "tables": {"1": {"rows": ["ec"], "columns": []}}}, facts("ec")),
        ({"data": {"layout": "digits", "also": {"test": "context-only"}}}, facts("test")),
    ],
    ids=lambda value: str(value)[:24],
)
def test_more_mistakes_in_recipes(changes, message):
    with pytest.raises(ValueError, match=message):
        check_recipe(DIGITS | changes, "digits")


def test_a_recipe_is_known_by_what_it_means():
    ten = [check_recipe(DIGITS | {"loss": {"name": "mbls", "margin": m}}, "m").key for m in (10, 10.0)]
    assert ten[0] == ten[1] == check_recipe(DIGITS | {"loss": {"name": "mbls"}}, "m").key
    assert digits(mean=[0.4]).key == digits(mean=[0.4, 0.4, 0.4]).key != digits(mean=[0.4, 0.4, 0.5]).key
