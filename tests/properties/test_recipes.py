"""The papers' recipes: all load, name their tables, hold numbers that a table can hold, and train.

Oracles: the bounds of each metric by definition; what mean confidence, accuracy, over- and underconfidence have to do
with each other; the learning rate of a first step by hand. The numbers themselves were read from the papers.
"""

import math
import re
import shlex
import tomllib

import pytest
import torch

from calibrant.detection import Detection
from calibrant.metrics import describe
from calibrant.models import build
from calibrant.recipes import FOLDER as RECIPES
from calibrant.training import load, load_method, train
from calibrant.training.recipe import check_recipe
from tests.helpers.recipe_data import WRITERS, written

FILES = sorted(RECIPES.rglob("*.toml"))
NAMES = [file.relative_to(RECIPES).with_suffix("").as_posix() for file in FILES]
every = pytest.mark.parametrize("file", FILES, ids=NAMES)

#: Sets that have rows in a table and are predicted apart from the run.
ELSEWHERE = {"imagenet-v2"}


def test_every_paper_has_its_recipes():
    papers = {name.split("_")[0] for name in NAMES if not name.startswith("small/")}
    assert papers == {"als", "acls", "mbls", "lr", "sc"}
    assert len([name for name in NAMES if name.startswith("small/")]) == 12


@every
def test_a_recipe_says_where_it_is_from(file):
    recipe = load(file)
    assert recipe.title
    assert recipe.table
    assert recipe.paper in ("ALS", "ACLS", "MbLS", "LR", "SC")
    small = file.parent.name == "small"
    assert recipe.table.endswith("in small") == small
    assert small or file.stem.startswith(recipe.paper.lower() + "_")
    assert not recipe.data.path  # where data lies is the reader's business
    # SC prints curves and no tables; what is small was not published
    assert bool(recipe.expected) == (not small and recipe.paper != "SC")


@every
def test_expected_numbers_are_such_as_a_table_holds(file):
    recipe = load(file)
    predicted = {"test", *recipe.data.also}
    if recipe.data.val or recipe.data.hold_out:
        predicted.add("val")
    rows = [(row.method, row.where) for row in recipe.expected]
    assert len(set(rows)) == len(rows)
    for row in recipe.expected:
        assert row.where in predicted | ELSEWHERE
        assert row.values
        assert re.search(r"Table [1-7AB]", row.note)
        for name, value in row.values.items():
            low, high = describe(name).bounds
            assert low <= value <= high, (row.method, name)
            assert name == "nll" or value < 1.0
        if "accuracy" in row.values and row.where != "context":
            assert row.values["accuracy"] > 0.3  # percent taken for a fraction, or a column taken for another
        for name in {"ece", "pycalib_ece_15"} & set(row.values) if "accuracy" in row.values else ():
            assert row.values[name] < max(row.values["accuracy"], 1 - row.values["accuracy"])


@every
def test_mean_confidence_follows_from_the_other_columns(file):
    for row in load(file).expected:
        v = row.values
        if {"accuracy", "overconfidence", "underconfidence", "mean_confidence"} <= set(v):
            mixed = v["accuracy"] * (1 - v["underconfidence"]) + (1 - v["accuracy"]) * v["overconfidence"]
            assert mixed == pytest.approx(v["mean_confidence"], abs=0.0025), (row.method, row.where)


def variants(file):
    """The ``--set`` lines of a recipe's comments, as lists of overrides."""
    lines = re.findall(r"^#     (--set .*)$", file.read_text(encoding="utf-8"), re.M)
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[::2] == ["--set"] * (len(words) // 2)
        yield words[1::2]


@every
def test_the_variants_in_the_comments_are_recipes_too(file):
    key = load(file).key
    for overrides in variants(file):
        assert load(file, overrides).key != key, overrides


@every
def test_layouts_splits_and_steps_are_known(file):
    recipe = load(file)
    assert recipe.data.layout in {*WRITERS, "scenes", "digits"}
    milestones = recipe.schedule.milestones
    assert list(milestones) == sorted(milestones)
    length = recipe.training.epochs or recipe.training.steps
    assert all(milestone <= length for milestone in milestones[:1])
    assert recipe.schedule.warmup < length
    assert (recipe.training.keep == "last") or recipe.data.hold_out or recipe.data.val


#: Networks that run in the place of larger ones, which tests/models runs, and which are built at full size below.
SMALLER = {
    "resnet50": "resnet18", "resnet101": "resnet18", "deeplabv3_resnet50": "deeplabv3plus_small",
    "deeplabv3_resnet101": "deeplabv3plus_small", "deeplabv3plus_resnet50": "deeplabv3plus_small",
    "vit_b_16": "vit_s_16", "densenet_bc_100_12": "resnet20", "resnet56v2": "resnet20v2", "vgg16_cifar": "resnet20",
}  # fmt: skip


def shrunk(file, method=None):
    """A recipe, or one of its methods, with small images, batches of 2 and two steps; nothing that is downloaded."""
    plain = tomllib.loads(file.read_text(encoding="utf-8"))
    if method is not None:
        plain = load_method(file, method).model_dump(mode="json", exclude_none=True)
    data, model = plain["data"], plain["model"]
    side = 64 if "deeplab" in model["name"] else 32
    for steps in (data.get("train_steps", []), data.get("steps", [])):
        for step in steps:
            if "size" in step:
                cropped = step["step"] == "resize" and any("crop" in other["step"] for other in steps)
                size = side + 4 if cropped else side
                step["size"] = [size, size] if isinstance(step["size"], list) else min(size, step["size"])
    for key, few in (("count", 2), ("per_class", 1)):
        if key in data.get("hold_out", ()):
            data["hold_out"][key] = few
    if "train_count" in data:
        data["train_count"] = 6
    if data["layout"] == "scenes":
        data["options"] = {"samples": 12}
    if "detection" in plain:  # the slips of one data set's annotators
        data.pop("options", None)
    if "text" in data:
        data["text"]["length"] = 40
    if "detection" not in plain:
        model["name"] = SMALLER.get(model["name"], model["name"])
    if "vit" in model["name"]:
        model["image_size"] = side
    for key in ("weights", "head", "backbone_weights"):
        model.pop(key, None)
    plain["optimiser"]["clip"] = 0.1  # batch norm over two samples of one pixel gives gradients of any size
    plain["training"] |= {"batch_size": 2, "eval_batch_size": 3, "max_steps": 2, "workers": 0, "keep": "last"}
    return check_recipe(plain, str(file))


def kind(file, method):
    """What makes one run unlike another: recipes that share it share a run."""
    recipe = shrunk(file, method)
    o, t = recipe.optimiser, recipe.targets
    mixing = recipe.mixing and recipe.mixing.name
    return (
        recipe.model.name, recipe.data.layout, recipe.loss.name, t.name, mixing, recipe.data.context_rate > 0,
        recipe.data.variant and recipe.data.variant_of, o.name, o.sam, recipe.schedule.name, recipe.schedule.warmup > 0,
    )  # fmt: skip


#: Every recipe as it stands, and ALS's methods, which differ in more than the loss.
PLANS = [(file, None) for file in FILES] + [
    (RECIPES / "als_imagenet.toml", method) for method in load("als_imagenet").methods
]
RUNS = {kind(*plan): plan for plan in reversed(PLANS)}  # the first of each kind
RUN_NAMES = [f"{f.relative_to(RECIPES).with_suffix('').as_posix()}{f': {m}' if m else ''}" for f, m in RUNS.values()]


@pytest.fixture(scope="module")
def data_root(tmp_path_factory):
    return tmp_path_factory.mktemp("recipe_data")


@pytest.mark.slow
@pytest.mark.parametrize(("file", "method"), RUNS.values(), ids=RUN_NAMES)
def test_two_steps_of_training(file, method, data_root, tmp_path):
    recipe = shrunk(file, method)
    steps = []
    home = written(recipe.data.layout, data_root)
    result = train(
        recipe,
        tmp_path / "run",
        data=None if home is None else str(home),
        accelerator="cpu",
        task=None if recipe.detection is None else Detection(),
        event_log=lambda event, numbers: steps.append(dict(numbers)) if event == "step" else None,
    )
    assert len(steps) == result["steps"] == 2
    assert all(math.isfinite(step["loss"]) for step in steps)
    first = recipe.schedule.warmup_start if recipe.schedule.warmup else 1.0
    assert steps[0]["rate"] == pytest.approx(recipe.optimiser.rate * first)
    here = {name for name, also in recipe.data.also.items() if isinstance(also, str) or also.layout is None}
    assert set(result["sets"]) == {"test"} | here | ({"val"} if recipe.data.hold_out or recipe.data.val else set())
    metric = "accuracy" if recipe.detection is None else "ap"
    assert all(0 <= numbers[metric] <= 1 for numbers in result["sets"].values())


#: Table A is one method with other numbers.
ACLS_ROWS = [
    name
    for name, method in load("acls_tiny_imagenet_resnet50").methods.items()
    if method.of is None and name.partition("=")[1] == ""
]


@pytest.mark.slow
@pytest.mark.parametrize("method", [*ACLS_ROWS, "acls, lambda1=0, lambda2=0"])
def test_every_method_of_a_table_trains(method, data_root, tmp_path):
    """ACLS's Tables 3, 5, 6 and B, on a network that is fast."""
    recipe = load_method("acls_tiny_imagenet_resnet50", method)
    plain = recipe.model_dump(mode="json", exclude_none=True) | {"model": {"name": "small_resnet"}}
    plain["data"]["hold_out"] = {"per_class": 1}
    plain["training"] |= {"batch_size": 3, "max_steps": 4, "epochs": 2, "workers": 0}
    losses = []
    train(
        check_recipe(plain, "the variant"),
        tmp_path / "run",
        data=str(written("tiny-imagenet", data_root)),
        accelerator="cpu",
        event_log=lambda event, numbers: losses.append(numbers["loss"]) if event == "step" else None,
    )
    assert len(losses) == 4
    assert all(map(math.isfinite, losses))


@every
def test_the_network_and_the_optimiser_can_be_built_at_full_size(file):
    recipe = load(file)
    options = dict(recipe.model.model_extra or {})
    options.pop("backbone_weights", None)
    with torch.device("meta"):  # shapes alone: nothing is allocated
        model = build(recipe.model.name, num_classes=17, stem=recipe.model.stem, **options)
        optimiser = recipe.optimiser.build(model)
    sizes = {id(p): p.numel() for group in optimiser.param_groups for p in group["params"]}
    assert sum(sizes.values()) == sum(p.numel() for p in model.parameters())
    factors = {group["factor"] for group in optimiser.param_groups}
    assert factors == ({1.0, *recipe.optimiser.rates.values()} if recipe.optimiser.rates else {1.0})


def test_every_layout_and_every_kind_of_setting_is_run():
    runs = [shrunk(*plan) for plan in RUNS.values()]
    assert {run.data.layout for run in runs} == {load(file).data.layout for file in FILES}
    assert {run.schedule.name for run in runs} >= {"multistep", "step", "cosine", "poly"}
    assert {run.mixing.name for run in runs if run.mixing} == {"cutmix", "ricap"}
    assert any(run.optimiser.sam for run in runs)
    assert any(run.schedule.warmup for run in runs)
    assert any(run.targets.name == "adaptive" and run.mixing for run in runs)
    assert any(run.data.context_rate for run in runs)
    assert any(run.data.text for run in runs)
    assert any(run.data.resample for run in runs)
    assert any(run.data.variant for run in runs)
    assert {"sgd", "adam", "adamw"} == {run.optimiser.name for run in runs}
