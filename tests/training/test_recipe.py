"""Recipes: every value has bounds that are said, and whatever is wrong is one sentence without jargon."""

import contextlib
import re
import time

import pytest

from calibrant.training import load
from calibrant.training.components import MIXING, STEPS, make, make_loss, make_steps
from calibrant.training.recipe import LARGEST_FILE, check_recipe
from calibrant.training.settings import LARGEST_SEED
from tests.helpers.digit_runs import DIGITS, digits
from tests.helpers.errors import facts
from tests.training.conftest import RECIPE


def refused(file, *overrides):
    with pytest.raises(ValueError, match=r".") as failure:
        load(file, overrides)
    assert "\n" not in str(failure.value)
    assert len(str(failure.value)) < 700
    return str(failure.value)


#: A setting, what its error names besides it: the value that came, or what there is instead.
WRONG = [
    ("seed=-1", "-1"), ("seed=9223372036854775808", "9223372036854775808"), ("seed=true", "True"), ("seed='1'", "'1'"),
    ("data.hold_out={count=5, seed=-1}", "data.hold_out.seed", "-1"), ("data.hold_out=3", "3"),
    ("data.hold_out={fraction=0.1, count=3}", "per_class"), ("training.epochs=inf", "inf"),
    ("training.epochs=1e300", "1e+300"), ("training.epochs=-1", "-1"), ("training.epoch=3", "epochs"),
    ("training={steps=10000000000}", "training.steps"), ("training.batch_size=many", "many"),
    ("training.workers=2000", "1024"), ("training.compile=1", "1"), ("training.best_by=[1]", "[1]"),
    ("training.best_by=acuracy", "best_by", "accuracy"), ("training=3", "3"), ("optimizer.rate=3", "optimiser"),
    ("optimiser.rate=nan", "nan"), ("optimiser.betas=[0.9, 1.0]", "1.0"), ("optimiser.betas=0.9", "0.9"),
    ("optimiser={nesterov=true, momentum=0.0}", "nesterov", "momentum"), ("optimiser.rates={layers=-1}", "layers"),
    ("schedule={name='step', every=1e-320}", "schedule.every"), ("schedule.milestones=[nan]", "milestones"),
    ("schedule.name=cosin", "constant", "cosin"), ("loss.name=aclz", "aclz"),
    ("loss={name='acls', margin='x'}", "margin", "'x'"), ("loss={name='acls', margin=true}", "margin", "True"),
    ("loss={name='acls', margim=3}", "acls", "margim", "margin"), ("loss={name='acls', variant=3}", "released", "3"),
    ("loss={name='ce', weight=['x']}", "ce", "weight"), ("loss={name='ce', reduction='none'}", "reduction", "mean"),
    ("loss={name='crl', num_samples=1000000000}", "num_samples", "100000000"),
    ("loss={name='mmce', weighted='yes'}", "weighted", "'yes'"), ("mixing={name='cutmx'}", "cutmx", "cutmix"),
    ("mixing={name='cutmix', alpha='x'}", "alpha", "'x'"), ("mixing={name='cutmix', alpa=1.0}", "alpa", "alpha"),
    ("mixing={name='cutmix', probability=[1]}", "probability", "[1]"), ("mixing=3", "3"),
    ("data.blanking={name='cutout'}", "cutout", "size"), ("data.blanking={name='cutout', size=1.5}", "size", "1.5"),
    ("data.blanking={name='erasing', scale=[0.1]}", "scale", "[0.1]"), ("data.steps=[{step='resize'}]", "size"),
    ("data.steps=[{step='rezise', size=3}]", "rezise", "resize"),
    ("data.steps=[{step='resize', size=[1, 2, 3]}]", "size"),
    ("data.steps=[{step='resize', size=100000}]", "size", "8192", "100000"), ("data.steps=[3]", "data.steps.0", "3"),
    ("data.steps=[{step='flip', probability='often'}]", "probability", "'often'"),
    ("data.steps=[{step=['resize']}]", "['resize']"), ("data.colouring={brightness='x'}", "brightness", "'x'"),
    ("data.colouring={britness=0.1}", "britness", "brightness"), ("data.padding='x'", "data.padding"),
    ("data.mean=[1, 2]", "mean", "2", "3"), ("data.std=[0.0]", "data.std"),
    ("data.text={vocabulary=100000000}", "vocabulary", "10000000"), ("data.also={x=3}", "data.also.x", "3"),
    ("data.also={x={options={layout='y'}}}", "data.also.x.options", "layout"),
    ("data.also={test='context-only'}", "test"),
    ("data.options={path='/etc'}", "data.options", "path"), ("data.split_options={nosuch={}}", "nosuch", "train"),
    ("model.num_classes=3", "num_classes"), ("model.trust_code=true", "trust_code"), ("model.seed=3", "seed"),
    ("resources.cpus=1e9", "4096"), ("search={ls={alpha=[]}}", "search.ls.alpha"),
    ("expected=[{method='ce', values={ece=nan}}]", "ece"), ("title=1979-05-27", "title"), ("title", "name=value"),
    ("data.options={day=1979-05-27}", "data.options.day"), ("data.layout.deeper=1", "data.layout.deeper"),
    ("methods={ce={repair='temperature'}}", "repair", "of"), ("methods={t={of='ce', repair='temperature'}}", "ce"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("override", "words"), [(override, words) for override, *words in WRONG], ids=range(len(WRONG))
)
def test_wrong_values_are_named_with_what_they_must_be(recipe, override, words):
    said = refused(recipe, override)
    assert re.match(r"\w+", override)[0].rstrip("s") in said  # a method, a search, ...
    assert [word for word in words if word not in said] == [], said


DEEP = "[" * 10**5 + "]" * 10**5


@pytest.mark.parametrize(
    "override",
    [
        ".".join(["a"] * 10**4) + "=1",
        "x=" + DEEP,
        "x=" + "{a=" * 10**4 + "1" + "}" * 10**4,
        "data.options={x=" + "[" * 80 + "]" * 80 + "}",
        "seed=" + "9" * 5000,
        "seed=1\ntitle='x'",
        "title='''\n",
        "training.epochs=[" + "1," * 10**5 + "]",
    ],
    ids=lambda override: override[:12] + str(len(override)),
)
def test_hostile_overrides_are_refused_at_once(recipe, override):
    start = time.process_time()
    refused(recipe, override)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 1000,
        "a." * 10**5 + "a=1",
        "x=" + DEEP,
        "[" + "a." * 10**5 + "a]\nb=1",
        RECIPE + '[data]\nlayout="digits"\n',
        RECIPE.replace("[8]", "[" + "8," * 10**5 + "]").replace("name", "nome"),
        RECIPE + "[search.ls]\nalpha=[" + "1," * 10**5 + "]",
        RECIPE + "[search.ls]\n" + "".join(f"k{i}=[1]\n" for i in range(10**4)),
        RECIPE.replace('val = "val"', "steps=[" + "{step='flip'}," * 10**4 + "]"),
        "#" * (LARGEST_FILE + 1),
    ],
    ids=range(11),
)
def test_hostile_files_are_refused_at_once(tmp_path, text):
    (tmp_path / "hostile.toml").write_text(text)
    start = time.process_time()
    assert "hostile.toml" in refused(tmp_path / "hostile.toml")
    assert time.process_time() - start < 3


def test_files_that_are_no_text_are_refused(tmp_path):
    for data in (bytes(range(256)), RECIPE.encode("utf-16")):
        (tmp_path / "hostile.toml").write_bytes(data)
        assert "hostile.toml" in refused(tmp_path / "hostile.toml")
    with (tmp_path / "sparse.toml").open("wb") as file:
        file.truncate(10**10)  # not read
    assert "10,000,000,000" in refused(tmp_path / "sparse.toml")


@pytest.mark.parametrize("name", ["../up", "/absolute", "a/b", ".hidden", "", "x" * 65, "a\nb", "..", "a\\b"])
def test_a_set_that_is_predicted_is_named_as_a_file_can_be(name):
    """Its predictions are written as NAME.npz: a recipe cannot lead them out of the folder."""
    plain = {"data": {"layout": "digits", "also": {name: "context-only"}}, "model": {"name": "mlp"}}
    with pytest.raises(ValueError, match=facts("data.also")):
        check_recipe(plain, "here")
    check_recipe(plain | {"data": plain["data"] | {"also": {"imagenet-v2.b_1+": "context-only"}}}, "here")


def test_bounds_are_the_last_values_that_are_taken(recipe):
    assert load(recipe, [f"seed={LARGEST_SEED}"]).seed == LARGEST_SEED == 2**63 - 1
    assert load(recipe, ["training.epochs=1000000"]).training.epochs == 1e6
    assert load(recipe, ["optimiser.rate=1000000"]).optimiser.rate == 1e6


def test_keys_of_runs_are_those_of_earlier_versions():
    """A run is found by its key, on disk too; this one was computed before numbers had bounds."""
    plain = {"data": {"layout": "digits"}, "model": {"name": "mlp", "hidden": [16]}, "training": {"epochs": 3}}
    assert check_recipe(plain, "here").key == "7961eeea257aa691"


def test_a_loss_of_a_recipe_is_the_registrys():
    assert make_loss("acls", {"margin": 6}).margin == 6.0
    assert make_loss("ce", {"weight": [1, 2.5]}).weight.tolist() == [1.0, 2.5]
    assert make_loss("ce", {}, 255).ignore_index == 255
    assert [type(step).__name__ for step in make_steps([{"step": "resize", "size": [8, 9]}])] == ["Resize"]


def test_recipes_from_before_these_settings_keep_their_keys():
    data = {"layout": "camvid"}
    plain = {"data": data, "model": {"name": "deeplabv3plus_small"}}
    key = check_recipe(plain, "old").key
    assert check_recipe(plain | {"data": data | {"interpolate": True}}, "same").key == key
    assert check_recipe(plain | {"data": data | {"interpolate": False}}, "coarse").key != key
    assert check_recipe(plain | {"data": data | {"exclude": "Sky"}}, "without sky").key != key


def test_values_that_no_file_has_are_refused():
    plain = {"data": {"layout": "digits", "options": {"x": object()}}, "model": {"name": "mlp"}}
    for wrong, words in (
        (plain, ("data.options.x", "object")),
        (3, ("3",)),
        ({"data": {"layout": "digits"}}, ("model",)),
    ):
        with pytest.raises(ValueError, match=facts(*words)):
            check_recipe(wrong, "here")
    with pytest.raises(ValueError, match=facts("ec")):
        check_recipe(DIGITS | {"methods": {"ce": {}}, "tables": {"1": {"rows": ["ec"], "columns": []}}}, "digits")


@pytest.mark.parametrize(("what", "table"), [("step", STEPS), ("mixing", MIXING)])
def test_parameters_of_any_type_give_a_thing_or_a_sentence(what, table):
    for name, factory in table.items():
        for value in (None, True, "x", [], [1], {}, {"a": 1}, -1, 10**12, 1e300, [1, 2], ["a", "b"], [None, None]):
            for parameter in ("size", "pixels", "padding", "probability", "alpha", "scale", "side", "beta"):
                given = ({"size": 8} if "crop" in name else {}) | {parameter: value}
                with contextlib.suppress(ValueError):  # and nothing else
                    make(f"{what} {name!r}", factory, given)


def test_recipes_are_known_by_what_matters(recipe):
    plain = load(recipe)
    same = (["title=other"], ["training.workers=2"], ["data.path=x"], ["data.never_there="], ["training.epochs=2.0"])
    assert {load(recipe, override).key for override in same} == {plain.key}
    assert len({plain.key, load(recipe, ["loss={name='ls'}"]).key, load(recipe, ["seed=1"]).key}) == 3
    acls = RECIPE + '[loss]\nname = "acls"\nmargin = 6\n'
    recipe.write_text(acls)
    assert load(recipe, ['loss.name="ls"'], fresh_loss=True).build_loss().alpha == 0.05
    ten = [check_recipe(DIGITS | {"loss": {"name": "mbls", "margin": m}}, "m").key for m in (10, 10.0)]
    assert ten[0] == ten[1] == check_recipe(DIGITS | {"loss": {"name": "mbls"}}, "m").key
    assert digits(mean=[0.4]).key == digits(mean=[0.4, 0.4, 0.4]).key != digits(mean=[0.4, 0.4, 0.5]).key


def test_a_key_is_taken_out_by_an_empty_value(tmp_path):
    file = tmp_path / "digits.toml"
    file.write_text('[data]\nlayout = "digits"\nhold_out = {count = 100}\n[model]\nname = "mlp"\n')
    assert load(file).data.hold_out.count == 100
    assert load(file, ["data.hold_out="]).data.hold_out is None
