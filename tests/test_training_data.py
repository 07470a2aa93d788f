"""How recipes see their data: splits, variants, other folders, grey images, and pixels drawn from masks."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant import Policy, Predictions
from calibrant.data import Boxes, Dataset, ImageArray, Pipeline, Resize, read, single_object
from calibrant.export import export_onnx
from calibrant.training import load, load_model, predict, predict_run, prediction, train
from calibrant.training.datasets import align_classes, load_sets
from calibrant.training.optimisers import Schedule
from calibrant.training.prediction import Tally, example_inputs
from calibrant.training.recipe import check_recipe
from tests.recipe_data import written

DIGITS = {
    "data": {"layout": "digits", "hold_out": {"count": 100}},
    "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [16]},
    "optimiser": {"rate": 0.1},
    "training": {"batch_size": 128},
}


def digits(**data):
    return check_recipe(DIGITS | {"data": DIGITS["data"] | data}, "digits")


# --- splits -----------------------------------------------------------------------------------------------------------


def test_a_part_of_the_test_data_can_be_held_out():
    whole = load_sets(digits())
    sets = load_sets(digits(hold_out={"of": "test", "count": 100}))
    assert len(sets.train) == len(whole.train) + 100
    assert len(sets.val) == 100
    assert len(sets.test) == len(whole.test) - 100
    assert {*sets.val.ids, *sets.test.ids} == set(whole.test.ids)


def folder_of_classes(root, size=(8, 8)):
    for label in ("cat", "dog"):
        (root / label).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (size[0] + i % 2, size[1]), (20 * i, 0, 99)).save(root / label / f"{i}.png")
    return root


def test_a_test_set_cut_from_data_that_come_as_one(tmp_path):
    """A folder for each class is enough; the test set is the same for every seed."""
    home = folder_of_classes(tmp_path / "pictures")
    plain = DIGITS | {"data": {"layout": "image-folder", "train": "all", "test_share": 0.3, "hold_out": {"count": 4}}}
    sets = [load_sets(check_recipe(plain | {"seed": seed}, "pictures"), str(home)) for seed in (0, 1)]
    assert [(len(s.train), len(s.val), len(s.test)) for s in sets] == [(10, 4, 6)] * 2
    assert sets[0].test.ids == sets[1].test.ids
    assert len({*sets[0].train.ids, *sets[0].val.ids, *sets[0].test.ids}) == 20
    with pytest.raises(ValueError, match=r"image-folder has all; a recipe takes it by data\.train = 'all'"):
        load_sets(check_recipe(DIGITS | {"data": {"layout": "image-folder"}}, "pictures"), str(home))


def test_what_failed_before_its_first_checkpoint_holds_no_folder(tmp_path):
    """Images of different sizes are met at the first batch; the recipe that is put right may have the same folder."""
    home = folder_of_classes(tmp_path / "pictures")
    data = {"layout": "image-folder", "path": str(home), "train": "all", "test_share": 0.2}
    plain = DIGITS | {"data": data, "training": {"batch_size": 8, "epochs": 1}}
    with pytest.raises(ValueError, match="end the steps with a crop, centre_crop for example"):
        train(check_recipe(plain, "pictures"), tmp_path / "run")
    right = plain | {"data": data | {"steps": [{"step": "centre_crop", "size": 8}],
                                     "train_steps": [{"step": "random_crop", "size": 8}]}}  # fmt: skip
    train(check_recipe(right, "pictures"), tmp_path / "run")
    with pytest.raises(ValueError, match="holds a run already"):
        train(check_recipe(plain, "pictures"), tmp_path / "run")


def test_options_of_one_split():
    recipe = check_recipe(
        {
            "data": {"layout": "scenes", "options": {"samples": 6}, "split_options": {"train": {"samples": 9}}},
            "model": {"name": "small_cnn"},
        },
        "scenes",
    )
    sets = load_sets(recipe)
    assert (len(sets.train), len(sets.test)) == (9, 6)


@pytest.mark.parametrize("roles", [["train"], ["train", "val", "test"]], ids=len)
def test_one_sample_per_object_in_the_splits_that_are_named(roles, tmp_path):
    home = written("open-images", tmp_path)
    plain = {"layout": "open-images", "val": "validation", "test": "test"}
    model = {"name": "small_cnn"}
    sets = load_sets(check_recipe({"data": plain, "model": model}, "whole"), str(home))
    varied = plain | {"variant": "single-object", "variant_of": roles}
    found = load_sets(check_recipe({"data": varied, "model": model}, "single"), str(home))
    for role in ("train", "val", "test"):
        before, after = getattr(sets, role), getattr(found, role)
        objects = int(before.boxes.counts.sum())
        assert objects > 0
        assert len(after) == (objects if role in roles else len(before)), role


def test_a_key_is_taken_out_by_an_empty_value(tmp_path):
    file = tmp_path / "digits.toml"
    file.write_text('[data]\nlayout = "digits"\nhold_out = {count = 100}\n[model]\nname = "mlp"\n')
    assert load(file).data.hold_out.count == 100
    assert load(file, ["data.hold_out="]).data.hold_out is None
    assert load(file, ["data.never_there="]).key == load(file).key


# --- other folders ----------------------------------------------------------------------------------------------------


@pytest.fixture
def numbered(tmp_path):
    """Two digits of every class, as folders called 0 to 9: image-folder sorts them by name."""
    data = read("digits", "test")
    for position in range(len(data.classes)):
        for nth, row in enumerate(np.flatnonzero(data.labels == position)[:2]):
            file = tmp_path / "other" / str(position) / f"{nth}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            data.inputs.open(int(row)).save(file)
    return tmp_path / "other"


def test_another_folder_is_predicted_in_the_classes_that_were_trained(numbered, tmp_path):
    also = {"again": {"layout": "image-folder", "path": str(numbered)}, "nowhere": {"layout": "image-folder"}}
    recipe = digits(also=also)
    told = []
    train(recipe, tmp_path / "run", event_log=lambda event, numbers: told.append((event, dict(numbers))))
    assert dict(told)["start"]["left_out"] == ("nowhere",)
    assert not (tmp_path / "run" / "nowhere.npz").exists()
    found = Predictions.open(tmp_path / "run" / "again.npz")
    test = Predictions.open(tmp_path / "run" / "test.npz")
    assert found.class_names == test.class_names
    for logits, label in zip(found.logits, found.labels, strict=True):  # the same pixels, the same numbers
        same = np.flatnonzero(np.abs(test.logits - logits).max(1) < 1e-5)
        assert len(same) >= 1
        assert set(test.labels[same]) == {label}
    later = predict_run(tmp_path / "run", data=str(numbered), layout="image-folder")
    assert np.array_equal(later.logits, found.logits)


def test_where_a_second_folder_lies_is_no_part_of_the_recipe(numbered):
    one, two = ({"again": {"layout": "image-folder", "path": path}} for path in ("", str(numbered)))
    assert digits(also=one).key == digits(also=two).key


def test_classes_are_matched_by_name_before_position():
    pixels = ImageArray(np.zeros((3, 2, 2, 3), dtype=np.uint8))
    some = Dataset("some", "test", ("b", "c"), tuple("xyz"), [0, 1, -1], pixels)
    assert align_classes(some, ("a", "b", "c")).labels.tolist() == [1, 2, -1]
    numbers = Dataset("numbers", "test", ("1", "10", "2"), tuple("xyz"), [0, 1, 2], pixels)
    assert align_classes(numbers, tuple("abcdefghijk")).labels.tolist() == [1, 10, 2]
    assert align_classes(numbers, ("2", "10", "1")).labels.tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match="the class 'b' is none of the 2 that were trained"):
        align_classes(some, ("c", "d"))
    with pytest.raises(ValueError, match="the class '10' is none of the 3"):
        align_classes(numbers, ("a", "b", "c"))


def test_boxes_follow_their_classes():
    boxes = Boxes.of([[[0, 0, 1, 1]], [[0, 0, 2, 2]]], labels=[[0], [1]])
    data = Dataset(
        "two", "test", ("dog", "cat"), ("x", "y"), [0, 1], ImageArray(np.zeros((2, 2, 2, 3), np.uint8)), boxes
    )
    found = single_object(align_classes(data, ("cat", "dog")))
    assert found.labels.tolist() == [1, 0]


def test_the_test_split_may_be_called_val(tmp_path):
    """Its name must not be taken for the part that was held out."""
    recipe = digits(test="val", hold_out={"count": 150})
    train(recipe, tmp_path / "run")
    own = Predictions.open(tmp_path / "run" / "test.npz")
    assert np.array_equal(predict_run(tmp_path / "run").logits, own.logits)
    assert len(own) != 150
    with pytest.raises(ValueError, match="'val' is what was held out of this run and the name of its test split"):
        predict_run(tmp_path / "run", split="val")


def test_the_model_that_was_kept_predicts(tmp_path):
    plain = DIGITS | {"optimiser": {"rate": 0.1}, "loss": {"name": "ls", "alpha": 0.5}}
    plain["training"] = {"batch_size": 128, "epochs": 4, "keep": "best", "best_by": "ece"}  # it falls, then rises
    result = train(check_recipe(plain, "best"), tmp_path / "run")
    scores = [entry["val_ece"] for entry in result["history"]]
    assert min(scores) < scores[-1]  # else there is nothing to tell apart
    own = Predictions.open(tmp_path / "run" / "test.npz").logits
    assert np.array_equal(predict_run(tmp_path / "run").logits, own)
    assert np.array_equal(predict_run(tmp_path / "run", checkpoint="best").logits, own)
    assert not np.array_equal(predict_run(tmp_path / "run", checkpoint="last").logits, own)
    assert result["sets"]["val"]["ece"] == pytest.approx(min(scores))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"keep": "best"}, "data": {"layout": "digits"}}, "needs validation data"),
        ({"targets": {"name": "adaptive"}}, "adaptive targets are for data of images .* and boxes"),
        ({"data": {"layout": "mnist"}}, r"does not say where its data \(mnist\) lies; --data DIR does"),
    ],
    ids=["best", "adaptive", "nowhere"],
)
def test_nothing_is_passed_over_in_silence(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(check_recipe(DIGITS | changes, "digits"), tmp_path / "run")
    assert not (tmp_path / "run").exists()  # a better recipe finds the way free


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"best_by": "acuracy"}}, "best_by takes one of .*did you mean 'accuracy'"),
        ({"loss": {"name": "aclss"}}, "unknown loss 'aclss' .did you mean 'acls'"),
        ({"loss": {"name": "acls", "margn": 3}}, "no 'margn' .did you mean 'margin'"),
        ({"training": 3}, "training must be a table, got 3"),
        ({"data": {"layout": "digits", "also": {"test": "context-only"}}}, "also names 'test'"),
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


# --- length and rate --------------------------------------------------------------------------------------------------


def test_a_run_can_be_as_long_as_some_steps(tmp_path):
    schedule = {"name": "poly", "power": 1.0}
    recipe = check_recipe(DIGITS | {"training": {"batch_size": 128, "steps": 14}, "schedule": schedule}, "steps")
    rates = []
    train(recipe, tmp_path / "run", event_log=lambda event, n: rates.append(n["rate"]) if event == "step" else None)
    assert rates == pytest.approx([0.1 * (1 - k / 14) for k in range(14)])
    with pytest.raises(ValueError, match="epochs or steps, not both"):
        check_recipe(DIGITS | {"training": {"steps": 14, "epochs": 2}}, "both")


def test_the_rate_falls_with_every_step_as_in_keras():
    schedule = Schedule(name="multistep", milestones=[2], gamma=0.1, decay=1e-2)
    assert schedule.factor(1.0, 4, step=100) == pytest.approx(1 / (1 + 1e-2 * 100))
    assert schedule.factor(3.0, 4, step=300) == pytest.approx(0.1 / (1 + 1e-2 * 300))


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_grey_images_have_one_channel(tmp_path):
    plain = {
        "data": {"layout": "digits", "channels": 1, "mean": [0.25], "std": [0.5]},
        "model": {"name": "mlp", "input_size": [1, 8, 8], "hidden": [16]},
        "training": {"max_steps": 2},
    }
    train(check_recipe(plain, "grey"), tmp_path / "run")
    found = Predictions.open(tmp_path / "run" / "test.npz")
    assert np.isfinite(found.logits).all()
    with pytest.raises(ValueError, match="mean has 3 values for 1 channels"):
        check_recipe(plain | {"data": plain["data"] | {"mean": [0.1, 0.2, 0.3]}}, "grey")


@pytest.mark.parametrize(
    "changes", [{"precision": "bf16-mixed"}, {"precision": "64-true"}, {"channels_last": True}], ids=str
)
def test_interrupted_runs_in_other_precisions_go_on_exactly(changes, tmp_path):
    length = {"batch_size": 128, "epochs": 2, "checkpoint_seconds": 1e-9}
    recipe = check_recipe(DIGITS | {"training": length | changes}, "precision")

    def stop(event, numbers):
        if event == "checkpoint" and numbers["step"] == 9:
            raise KeyboardInterrupt

    train(recipe, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "cut", event_log=stop)
    train(recipe, tmp_path / "cut", resume=True)
    one, two = (Predictions.open(tmp_path / name / "test.npz").logits for name in ("whole", "cut"))
    assert one.dtype == two.dtype
    assert np.array_equal(one, two)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
def test_a_compiled_model_learns_the_same(tmp_path):
    short = {"batch_size": 128, "max_steps": 4}
    plain = train(check_recipe(DIGITS | {"training": short}, "plain"), tmp_path / "plain")
    compiled = train(check_recipe(DIGITS | {"training": short | {"compile": True}}, "compiled"), tmp_path / "compiled")
    assert compiled["sets"]["test"]["nll"] == pytest.approx(plain["sets"]["test"]["nll"], rel=1e-4)
    assert predict_run(tmp_path / "compiled").logits.shape == (450, 10)


# --- pixels -----------------------------------------------------------------------------------------------------------


class Pixelwise(torch.nn.Module):
    """Logits from the colours of each pixel."""

    def forward(self, images):
        return torch.stack([images[:, 0], images[:, 1] * 2.0, images[:, 2] - 0.5], 1)


class Masks:
    """Images of labels, of different sizes."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays)

    def __getitem__(self, index):
        return Image.fromarray(self.arrays[index])


class Pictures(Masks):
    kind = "image"

    def open(self, index, draft=None):
        return self[index]


@pytest.fixture
def segmented():
    random = np.random.default_rng(0)
    sizes = [(7, 5), (6, 9), (4, 4)]
    images = Pictures([random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes])
    masks = [random.integers(0, 3, size, dtype=np.uint8) for size in sizes]
    masks[0][:4] = 255
    masks[2][:] = 255  # nothing is labelled
    return Dataset(
        "pixels", "test", ("a", "b", "c"), ("x", "y", "z"), [-1, -1, -1], images, masks=Masks(masks), ignore_index=255
    )


def test_some_pixels_of_every_image_are_kept(segmented):
    tally = Tally(segmented)
    found = predict(Pixelwise(), segmented, batch_size=1, pixels=10, tally=tally, mean=(0, 0, 0), std=(1, 1, 1))
    assert found.kind == "classification"
    assert len(found) == 20
    assert len(set(found.ids.tolist())) == 20
    for logits, label, place in zip(found.logits, found.labels, found.ids, strict=True):
        image, pixel = divmod(int(place), 2**32)
        colours = segmented.inputs.arrays[image].reshape(-1, 3)[pixel] / 255.0
        assert logits == pytest.approx([colours[0], 2 * colours[1], colours[2] - 0.5], abs=1e-6)
        assert label == segmented.masks.arrays[image].ravel()[pixel] != 255
    again = predict(Pixelwise(), segmented, batch_size=1, pixels=10, mean=(0, 0, 0), std=(1, 1, 1))
    assert np.array_equal(again.logits, found.logits)
    every = predict(Pixelwise(), segmented, batch_size=1, pixels=1000, mean=(0, 0, 0), std=(1, 1, 1))
    assert len(every) == 15 + 54
    right = every.logits.argmax(1) == every.labels
    assert tally.compute()["accuracy"] == pytest.approx(right.mean())  # of all pixels, not of the ten
    shares = [
        ((every.logits.argmax(1) == k) & (every.labels == k)).sum()
        / ((every.logits.argmax(1) == k) | (every.labels == k)).sum()
        for k in range(3)
    ]
    assert tally.compute()["mean_iou"] == pytest.approx(np.mean(shares))


def test_whole_images_must_fit_into_memory_and_be_of_one_size(segmented, monkeypatch):
    with pytest.raises(ValueError, match=r"images of different sizes: .*data\.pixels = 5000"):
        predict(Pixelwise(), segmented, batch_size=1)
    monkeypatch.setattr(prediction, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"the logits of 3 images .*data\.pixels = 5000"):
        predict(Pixelwise(), Pipeline(segmented, [Resize((8, 12))]))
    assert predict(Pixelwise(), Pipeline(segmented, [Resize((9, 3))])).logits.shape == (3, 3, 3, 9)  # 972 bytes


def test_a_run_writes_pixels_and_counts_them_all(tmp_path):
    home = written("camvid", tmp_path)
    plain = {
        "data": {"layout": "camvid", "pixels": 7, "steps": [{"step": "resize", "size": [32, 24]}]},
        "model": {"name": "deeplabv3plus_small"},
        "training": {"max_steps": 1, "batch_size": 2},
    }
    recipe = check_recipe(plain, "camvid")
    result = train(recipe, tmp_path / "run", data=str(home))
    sets = load_sets(recipe, str(home))
    found = Predictions.open(tmp_path / "run" / "test.npz")
    assert len(found) <= 7 * len(sets.test)
    assert found.logits.shape[1:] == (len(sets.test.classes),)
    whole = check_recipe(plain | {"data": {k: v for k, v in plain["data"].items() if k != "pixels"}}, "camvid")
    assert train(whole, tmp_path / "whole", data=str(home))["sets"] == result["sets"]
    assert Predictions.open(tmp_path / "whole" / "test.npz").kind == "segmentation"


def test_a_run_on_texts_is_exported(tmp_path):
    home = written("newsgroups", tmp_path)
    plain = {
        "data": {"layout": "newsgroups", "text": {"vocabulary": 500, "length": 40, "dimensions": 16}},
        "model": {"name": "gpcn"},
        "training": {"max_steps": 2, "batch_size": 2},
    }
    train(check_recipe(plain, "texts"), tmp_path / "run", data=str(home))
    policy = Policy.fit(Predictions.open(tmp_path / "run" / "test.npz"), target_coverage=0.5)
    model, shape, names = load_model(tmp_path / "run")
    assert (shape, names) == ([40], list(policy.class_names))
    words = example_inputs(tmp_path / "run")
    done = export_onnx(policy, tmp_path / "texts.onnx", model=model, input_shape=shape, inputs=words)
    assert done.rows >= len(words)
    assert "int64" in str(done.inputs[0].kind).lower()
