"""Recipes: every value has bounds that are said, and whatever is wrong is one sentence without jargon."""

import time

import pytest

from calibrant.training import load
from calibrant.training.components import MIXING, STEPS, describe_hint, make, make_loss, make_steps
from calibrant.training.recipe import LARGEST_FILE, Recipe, check_recipe
from calibrant.training.settings import LARGEST_SEED
from tests.helpers.errors import facts
from tests.training.conftest import RECIPE

JARGON = ("unexpected keyword", "object is not", "positional argument", "Input should", "NoneType", "constrained-",
          "literal[", "tuple", "integer", "boolean", "float", "dict")  # fmt: skip


def refused(file, *overrides):
    with pytest.raises(ValueError) as failure:  # noqa: PT011 (every message is looked at)
        load(file, overrides)
    said = str(failure.value)
    assert "\n" not in said
    assert len(said) < 700
    assert not [word for word in JARGON if word in said], said
    return said


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("seed=-1", "seed must be greater than or equal to 0, got -1"),
        ("seed=9223372036854775808", "seed must be at most 2**63 - 1 in size, got 9223372036854775808"),
        ("seed=true", "seed must be a whole number, got True"),
        ("seed=1.0", "seed must be a whole number, got 1.0"),
        ("seed='1'", "seed must be a whole number, got '1'"),
        ("data.hold_out={count=5, seed=-1}", "data.hold_out.seed must be greater than or equal to 0"),
        ("data.hold_out={count=5, seed=99999999999999999999}", "data.hold_out.seed must be at most 2**63 - 1"),
        ("data.hold_out=3", "data.hold_out must be a table, got 3"),
        ("training.epochs=inf", "training.epochs must be a finite number, got inf"),
        ("training.epochs=1e300", "training.epochs must be less than or equal to 1000000, got 1e+300"),
        ("training.epochs=true", "training.epochs must be a number, got True"),
        ("training={steps=10000000000}", "training.steps must be less than or equal to 1000000000"),
        ("training.batch_size=1000001", "training.batch_size must be less than or equal to 1000000"),
        ("training.workers=2000", "training.workers must be less than or equal to 1024"),
        ("training.compile=1", "training.compile must be true or false, got 1"),
        ("training.best_by=[1]", "training.best_by must be text, got [1]"),
        ("optimiser.rate=nan", "optimiser.rate must be a finite number, got nan"),
        ("optimiser.rate=1e7", "optimiser.rate must be less than or equal to 1000000"),
        ("optimiser.betas=[0.9, 1.0]", "optimiser.betas.1 must be less than 1, got 1.0"),
        ("optimiser.betas=0.9", "optimiser.betas must be a list, got 0.9"),
        ("optimiser={nesterov=true, momentum=0.0}", "optimiser: nesterov needs a momentum above 0"),
        ("optimiser.rates={layers=-1}", "optimiser.rates.layers must be greater than or equal to 0"),
        ("schedule={name='step', every=1e-320}", "schedule.every must be greater than or equal to"),
        ("schedule.milestones=[nan]", "schedule.milestones must be a finite number"),
        ("loss={name='acls', margin='x'}", "loss 'acls': margin must be a number, got 'x'"),
        ("loss={name='acls', margin=true}", "loss 'acls': margin must be a number, got True"),
        ("loss={name='acls', margin={a=1}}", "loss 'acls': margin must be a number"),
        ("loss={name='acls', margim=3}", "loss 'acls' has no 'margim'; it has margin,"),
        ("loss={name='acls', variant=3}", "variant must be one of 'released', 'paper', got 3"),
        ("loss={name='ce', weight='x'}", "loss 'ce': weight must be a list of numbers, got 'x'"),
        ("loss={name='ce', weight=['x']}", "loss 'ce': weight must be a list of numbers"),
        ("loss={name='ce', reduction='none'}", "reduction must be 'mean' or 'sum' in training"),
        ("loss={name='crl', num_samples=1000000000}", "loss 'crl': num_samples must be at most 100000000"),
        ("loss={name='mmce', weighted='yes'}", "weighted must be true or false, got 'yes'"),
        ("mixing={name='cutmix', alpha='x'}", "mixing 'cutmix': alpha must be a number, got 'x'"),
        (
            "mixing={name='cutmix', alpa=1.0}",
            "mixing 'cutmix' has no 'alpa'; it has alpha, probability; did you mean 'alpha'?",
        ),
        ("mixing={name='cutmix', probability=[1]}", "probability must be a number, got [1]"),
        ("mixing=3", "mixing must be a table, got 3"),
        ("data.blanking={name='cutout'}", "blanking 'cutout' needs size: a whole number"),
        ("data.blanking={name='cutout', size=1.5}", "size must be a whole number, got 1.5"),
        ("data.blanking={name='erasing', scale=[0.1]}", "scale must be two numbers, got [0.1]"),
        ("data.steps=[{step='resize'}]", "step 'resize' needs size: a whole number or two whole numbers"),
        ("data.steps=[{step='resize', size=[1, 2, 3]}]", "size must be a whole number or two whole numbers"),
        ("data.steps=[{step='resize', size=100000}]", "step 'resize': size must be at most 8192, got 100000"),
        ("data.steps=[{step='pad', pixels=1000000}]", "step 'pad': pixels must be at most 8192"),
        ("data.steps=[{step='flip', probability='often'}]", "probability must be a number, got 'often'"),
        ("data.steps=[{step=['resize']}]", "a step is named by text, got ['resize']"),
        ("data.steps=[3]", "data.steps.0 must be a table, got 3"),
        ("data.colouring={brightness='x'}", "data.colouring.brightness must be a number, got 'x'"),
        ("data.colouring={britness=0.1}", "colouring has no 'britness'; it has brightness"),
        ("data.padding='x'", "data.padding must be"),
        ("data.mean=[1, 2]", "mean has 2 values for 3 channels"),
        ("data.std=[0.0]", "data.std.0 must be greater than 0"),
        ("data.text={vocabulary=100000000}", "data.text.vocabulary must be less than or equal to 10000000"),
        ("data.also={x=3}", "data.also.x must be a table, got 3"),
        ("data.also={x={options={layout='y'}}}", "data.also.x.options: 'layout' is not an option of a reader"),
        ("data.options={path='/etc'}", "data.options: 'path' is not an option of a reader"),
        ("data.split_options={train={on_error='skip'}}", "'on_error' is not an option of a reader"),
        ("data.split_options={nosuch={}}", "data.split_options must be 'train', 'val' or 'test', got 'nosuch'"),
        ("model.num_classes=3", "'num_classes' is not an option of a model: it is set by the data"),
        ("model.trust_code=true", "'trust_code' is not an option of a model: it is set by the command"),
        ("model.seed=3", "'seed' is not an option of a model: it is set by the run"),
        ("resources.cpus=1e9", "resources.cpus must be less than or equal to 4096"),
        ("search={ls={alpha=[]}}", "search.ls.alpha must have at least 1 members, got 0"),
        ("expected=[{method='ce', values={ece=nan}}]", "expected.values.ece must be a finite number"),
        ("title=1979-05-27", "title must be text, a number, true or false, got a date"),
        ("data.options={day=1979-05-27}", "data.options.day must be text, a number, true or false"),
        ("data.layout.deeper=1", "'data.layout.deeper': 'layout' is a value, not a table"),
    ],
)
def test_wrong_values_are_named_with_what_they_must_be(recipe, override, words):
    assert words in refused(recipe, override)


@pytest.mark.parametrize("name", ["../up", "/absolute", "a/b", ".hidden", "", "x" * 65, "a\nb", "..", "a\\b"])
def test_a_set_that_is_predicted_is_named_as_a_file_can_be(name):
    """Its predictions are written as NAME.npz: a recipe cannot lead them out of the folder."""
    plain = {"data": {"layout": "digits", "also": {name: "context-only"}}, "model": {"name": "mlp"}}
    with pytest.raises(ValueError, match=r"data\.also: the name of a set becomes a file name"):
        check_recipe(plain, "here")
    check_recipe(plain | {"data": plain["data"] | {"also": {"imagenet-v2.b_1+": "context-only"}}}, "here")


@pytest.mark.parametrize(
    "override",
    [
        ".".join(["a"] * 10**4) + "=1",
        "x=" + "[" * 10**5 + "]" * 10**5,
        "x=" + "{a=" * 10**4 + "1" + "}" * 10**4,
        "data.options={x=" + "[" * 80 + "]" * 80 + "}",
        "seed=" + "9" * 5000,
        "seed=1\ntitle='x'",
        "title='''\n",
        "training.epochs=" + "[" + "1," * 10**5 + "]",
    ],
    ids=lambda override: override[:12] + str(len(override)),
)
def test_hostile_overrides_are_refused_at_once(recipe, override):
    start = time.process_time()
    refused(recipe, override)
    assert time.process_time() - start < 2


def written(tmp_path, text):
    path = tmp_path / "hostile.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0" * 1000,
        bytes(range(256)),
        RECIPE.encode("utf-16"),
        "a." * 10**5 + "a=1",
        '"a".' * 10**5 + "b=1",
        "x=" + "[" * 10**5 + "]" * 10**5,
        "[" + "a." * 10**5 + "a]\nb=1",
        RECIPE + '[data]\nlayout="digits"\n',
        RECIPE.replace("[8]", "[" + "8," * 10**5 + "]").replace("name", "nome"),
        RECIPE + "[search.ls]\nalpha=[" + "1," * 10**5 + "]",
        RECIPE + "[search.ls]\n" + "".join(f"k{i}=[1]\n" for i in range(10**4)),
        RECIPE + "[schedule]\nmilestones=[" + "1," * 10**5 + "]",
        RECIPE.replace('val = "val"', "steps=[" + "{step='flip'}," * 10**4 + "]"),
        "#" * (LARGEST_FILE + 1),
    ],
    ids=lambda text: str(text[:10]) + str(len(text)),
)
def test_hostile_files_are_refused_at_once(tmp_path, text):
    start = time.process_time()
    said = refused(written(tmp_path, text))
    assert "hostile.toml" in said
    assert time.process_time() - start < 3


def test_a_file_of_zeros_is_not_read(tmp_path):
    with (tmp_path / "sparse.toml").open("wb") as file:
        file.truncate(10**10)
    assert "expected at most 1,048,576 bytes, got 10,000,000,000" in refused(tmp_path / "sparse.toml")


def test_bounds_are_the_last_values_that_are_taken(recipe):
    assert load(recipe, [f"seed={LARGEST_SEED}"]).seed == LARGEST_SEED == 2**63 - 1
    assert load(recipe, ["training.epochs=1000000"]).training.epochs == 1e6
    assert load(recipe, ["optimiser.rate=1000000"]).optimiser.rate == 1e6


def test_a_whole_number_is_a_number(recipe):
    """Whoever writes 3 means 3.0: the recipe is the same."""
    assert load(recipe, ["training.epochs=3"]).key == load(recipe, ["training.epochs=3.0"]).key
    assert load(recipe, ["loss={name='acls', margin=6}"]).key == load(recipe, ["loss={name='acls', margin=6.0}"]).key


def test_keys_of_runs_are_those_of_earlier_versions():
    """A run is found by its key, on disk too; this one was computed before numbers had bounds."""
    plain = {"data": {"layout": "digits"}, "model": {"name": "mlp", "hidden": [16]}, "training": {"epochs": 3}}
    assert check_recipe(plain, "here").key == "7961eeea257aa691"


def test_values_that_no_file_has_are_refused():
    plain = {"data": {"layout": "digits", "options": {"x": object()}}, "model": {"name": "mlp"}}
    with pytest.raises(ValueError, match=facts("data.options.x", "a object")):
        check_recipe(plain, "here")
    with pytest.raises(ValueError, match="must be a table, got 3"):
        check_recipe(3, "here")
    assert Recipe.model_validate(check_recipe(plain | {"data": {"layout": "digits"}}, "here")).data.layout == "digits"


@pytest.mark.parametrize(("what", "table"), [("step", STEPS), ("mixing", MIXING)])
def test_parameters_of_any_type_give_a_thing_or_a_sentence(what, table):
    for name, factory in table.items():
        for value in (None, True, "x", [], [1], {}, {"a": 1}, -1, 10**12, 1e300, [1, 2], ["a", "b"], [None, None]):
            for parameter in ("size", "pixels", "padding", "probability", "alpha", "scale", "side", "beta"):
                given = ({"size": 8} if "crop" in name else {}) | {parameter: value}
                said = ""
                try:
                    make(f"{what} {name!r}", factory, given)
                except ValueError as error:
                    said = str(error)
                assert not [word for word in JARGON if word in said], said


def test_types_in_words():
    assert describe_hint(int | tuple[int, int]) == "a whole number or two whole numbers"
    assert describe_hint(float | None) == "a number"


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
