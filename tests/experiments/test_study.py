"""Plans: bounds that are said, and methods that are compared on the same samples and labels."""

import time

import numpy as np
import pytest
from PIL import Image

from calibrant import Predictions
from calibrant.experiments import Contender, Study, compare
from calibrant.experiments.comparison import record_data
from calibrant.experiments.spaces import MOST_COMBINATIONS, draw, grid
from calibrant.experiments.study import MOST_CANDIDATES, MOST_SEEDS
from calibrant.training import load_sets, replace_settings
from calibrant.training.recipe import check_recipe
from tests.experiments.conftest import PLAIN, Here, Nobody, study


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seeds": tuple(range(MOST_SEEDS + 1))}, "a comparison takes at most 1000 seeds, got 1001"),
        ({"seeds": (2**63,)}, r"seeds are whole numbers from 0 to 2\*\*63 - 1"),
        ({"seeds": (-1,)}, "seeds are whole numbers from 0 to"),
        ({"seeds": (3, 3)}, "each given once"),
    ],
    ids=["many", "large", "negative", "twice"],
)
def test_seeds_have_bounds(settings, words):
    with pytest.raises(ValueError, match=words) as caught:
        study("ce", **settings)
    assert len(str(caught.value)) < 300


def searched(values, **settings):
    return Study(
        check_recipe(PLAIN | {"search": {"ls": values}}, "here"),
        {"ls": Contender("ls", {})},
        (0,),
        ("ece",),
        **settings,
    )


def test_searches_have_bounds():
    start = time.process_time()
    wide = {f"data.options.o{i}": list(range(9)) for i in range(9)}
    with pytest.raises(ValueError, match=f"at most {MOST_COMBINATIONS} combinations of a method, got 387420489"):
        searched(wide)
    with pytest.raises(ValueError, match=f"at most {MOST_CANDIDATES} candidates of a method are tried, got 2000"):
        searched({"alpha": [i / 2001 for i in range(1000)], "spread": ["all", "others"]})
    with pytest.raises(ValueError, match=r"search\.ls\.alpha must have at most 1000 members, got 1001"):
        searched({"alpha": [i / 2001 for i in range(1001)]})
    assert time.process_time() - start < 2
    for combine in (grid, lambda values: draw(values, 3, 0)):
        with pytest.raises(ValueError, match="combinations"):
            combine(wide)


@pytest.mark.parametrize(
    "settings",
    [
        {"data.test": "val"},
        {"data.layout": "scenes"},
        {"data.options.seed": 3},
        {"data.split_options.test.seed": 3},
        {"data.test_share": 0.5},
        {"data.resample": True},
        {"data.hold_out": {"count": 100, "of": "test"}},
        {"data.path": "elsewhere"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_methods_on_different_test_data_are_not_compared(settings):
    methods = {"ce": Contender("ce", {}), "other": Contender("ls", settings)}
    with pytest.raises(ValueError, match="'ce' and 'other' would be tested on different data"):
        Study(check_recipe(PLAIN, "here"), methods, (0,))
    Study(check_recipe(PLAIN, "here"), {"other": Contender("ls", settings)}, (0,))  # on its own it is a comparison
    Study(
        check_recipe(PLAIN, "here"),
        {"ce": Contender("ce", {}), "views": Contender("ls", {"data.context_rate": 0.1})},
        (0,),
    )


@pytest.mark.parametrize("name", ["nosuch.setting", "optimiser.rate.deeper", "data.hold_out.nosuch", "a" * 10**5])
def test_settings_that_lead_nowhere_are_one_sentence(name):
    with pytest.raises(ValueError, match=r"unknown key|is a value, not a table|must be") as caught:
        replace_settings(check_recipe(PLAIN, "here"), {name: 1})
    assert len(str(caught.value)) < 500


def test_a_setting_may_be_below_one_that_the_recipe_leaves_out():
    assert replace_settings(check_recipe(PLAIN, "here"), {"data.hold_out.count": 100}).data.hold_out.count == 100


def pictures(folder, names):
    for split in ("train", "test"):
        for shade, name in enumerate(names):
            (folder / split / name).mkdir(parents=True)
            for i in range(6):
                Image.new("RGB", (8, 8), (30 * i, 99 * shade, 0)).save(folder / split / name / f"{i}.png")
    return folder


@pytest.fixture
def images():
    data = {"layout": "image-folder"}
    return lambda *labels: study(*labels, plain=PLAIN | {"data": data, "training": {"epochs": 1, "batch_size": 4}})


def test_data_that_changed_in_their_place_are_noticed(images, tmp_path):
    """The same folder, other labels: runs before and after would be in one table."""
    home = pictures(tmp_path / "data", ["cat", "dog"])
    compare(images("ce"), tmp_path / "out", data=str(home), engine=Here())
    (home / "test" / "cat").rename(home / "test" / "aside")
    (home / "test" / "dog").rename(home / "test" / "cat")
    (home / "test" / "aside").rename(home / "test" / "dog")
    compare(images("ce"), tmp_path / "out", data=str(home), engine=Nobody())  # nothing to compute, nothing to mix
    with pytest.raises(ValueError, match="are different: name another folder"):
        compare(images("ce", "ls"), tmp_path / "out", data=str(home), engine=Nobody())


def test_other_seeds_may_draw_other_samples_of_the_same_data(tmp_path):
    """With ``train_count`` every seed trains on samples of its own, which is no reason to refuse a folder."""
    home = pictures(tmp_path / "data", ["cat", "dog"])
    data = {"layout": "image-folder", "hold_out": {"count": 2}, "train_count": 6}
    recipe = check_recipe(PLAIN | {"data": data, "training": {"epochs": 1, "batch_size": 4}}, "here")
    records = [
        record_data(Study(recipe, {"ce": Contender("ce", {})}, (seed,)), tmp_path / "out", str(home)) for seed in (0, 5)
    ]
    assert records[0] == records[1]
    drawn = [load_sets(replace_settings(recipe, {"data.hold_out.seed": seed}), str(home)).train.ids for seed in (0, 5)]
    assert drawn[0] != drawn[1]


def test_runs_with_other_labels_are_not_put_into_one_table(compared):
    """Copied from elsewhere, say: the key of a run does not tell which data lay there."""
    plan = study()
    run = compared / "runs" / plan.final("ls", {}, 0, "").key / "test.npz"
    data = Predictions.open(run)
    logits, labels, ids = np.array(data.logits), np.array(data.labels), list(data.ids)
    for changes in ({"labels": (labels + 1) % 10}, {"ids": ids[::-1]}, {"class_names": [*data.class_names[1:], "x"]}):
        plain = {"labels": labels, "ids": ids, "class_names": data.class_names} | changes
        Predictions.from_logits(logits, plain.pop("labels"), **plain).save(run)
        with pytest.raises(ValueError, match="have different samples, labels or classes"):
            compare(plan, compared, engine=Nobody())
    Predictions.from_logits(logits, labels, ids=ids, class_names=data.class_names).save(run)
    compare(plan, compared, engine=Nobody())


def test_what_a_method_holds_out_stays_held_out_and_is_drawn_for_every_seed():
    """LR: the price of temperature scaling is that its part of the data is never trained on."""
    recipe = check_recipe(PLAIN | {"search": {"ls": {"alpha": [0.1, 0.2]}}}, "here")
    own = {"data.hold_out": {"fraction": 0.15}}
    plan = Study(recipe, {"ls": Contender("ls", {}), "ce on 85%": Contender("ce", own)}, (3, 4), ("ece",))
    assert plan.final("ls", {"alpha": 0.1}, 4, "ece").recipe.data.hold_out is None
    for seed in (3, 4):
        held_out = plan.final("ce on 85%", own, seed, "ece").recipe.data.hold_out
        assert (held_out.fraction, held_out.seed) == (0.15, seed)


def test_a_method_with_a_whole_loss_takes_over_nothing_but_the_ignored_label():
    plain = {**PLAIN, "loss": {"name": "acls", "margin": 3.0, "ignore_index": 7}}
    whole = Contender("acls", {"loss": {"name": "acls", "lambda1": 0.2}})
    plan = Study(check_recipe(plain, "here"), {"own": Contender("acls", {}), "row": whole}, (0,))
    losses = {run.method: run.recipe.loss.parameters for run in plan.finals({})}
    assert losses == {"own": {"margin": 3.0, "ignore_index": 7}, "row": {"lambda1": 0.2, "ignore_index": 7}}
