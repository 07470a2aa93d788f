"""Data sets of a run: hold-outs, splits, other folders, classes matched by name, word vectors."""

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.data import Boxes, Dataset, ImageArray, Rows, Vocabulary, learn_vectors, read, single_object
from calibrant.data.text import tokens
from calibrant.training import load, load_model, predict_run, train
from calibrant.training.datasets import align_classes, have_same_data, index_of, load_sets
from calibrant.training.recipe import check_recipe
from tests.helpers import recipe_data
from tests.helpers.digit_runs import DIGITS, digits, folder_of_classes
from tests.helpers.errors import facts
from tests.helpers.recipe_data import written


def test_a_part_of_the_test_data_can_be_held_out():
    whole = load_sets(digits())
    sets = load_sets(digits(hold_out={"of": "test", "count": 100}))
    assert len(sets.train) == len(whole.train) + 100
    assert len(sets.val) == 100
    assert len(sets.test) == len(whole.test) - 100
    assert {*sets.val.ids, *sets.test.ids} == set(whole.test.ids)


def test_training_on_a_part_of_what_is_not_held_out():
    """Other samples for another seed of the hold-out, the same validation and test data as without it."""
    whole = load_sets(digits(hold_out={"count": 150}))
    sets = load_sets(digits(hold_out={"count": 150}, train_count=200))
    assert len(sets.train) == 200
    assert set(sets.train.ids) < set(whole.train.ids)
    assert (sets.val.ids, sets.test.ids) == (whole.val.ids, whole.test.ids)
    other = load_sets(digits(hold_out={"count": 150, "seed": 1}, train_count=200))
    assert set(other.train.ids) != set(sets.train.ids)
    assert load_sets(digits(hold_out={"count": 150}, train_count=len(whole.train))).train.ids == whole.train.ids
    with pytest.raises(ValueError, match=facts("train_count", "5000")):
        load_sets(digits(hold_out={"count": 150}, train_count=5000))
    assert digits(train_count=200).key != digits().key


def test_wrong_labels_are_those_of_the_training_samples_alone():
    clean = load_sets(digits(hold_out={"count": 150}))
    plan = digits(hold_out={"count": 150}, label_noise={"rate": 0.4, "kind": "pair"})
    noisy = load_sets(plan)
    wrong = noisy.train.labels != clean.train.labels
    assert wrong.sum() == round(0.4 * len(clean.train))
    assert (noisy.train.labels[wrong] == (clean.train.labels[wrong] + 1) % 10).all()
    assert noisy.train.ids == clean.train.ids
    for name in ("val", "test"):
        assert (getattr(noisy, name).labels == getattr(clean, name).labels).all()
    assert plan.key != digits(hold_out={"count": 150}).key
    with pytest.raises(ValueError, match=facts("label_noise.rate", "1.5")):
        digits(label_noise={"rate": 1.5})


def test_a_test_set_cut_from_data_that_come_as_one(tmp_path):
    """A folder for each class is enough; the test set is the same for every seed."""
    home = folder_of_classes(tmp_path / "pictures")
    plain = DIGITS | {"data": {"layout": "image-folder", "train": "all", "test_share": 0.3, "hold_out": {"count": 4}}}
    sets = [load_sets(check_recipe(plain | {"seed": seed}, "pictures"), str(home)) for seed in (0, 1)]
    assert [(len(s.train), len(s.val), len(s.test)) for s in sets] == [(10, 4, 6)] * 2
    assert sets[0].test.ids == sets[1].test.ids
    assert len({*sets[0].train.ids, *sets[0].val.ids, *sets[0].test.ids}) == 20
    with pytest.raises(ValueError, match=facts("all")):
        load_sets(check_recipe(DIGITS | {"data": {"layout": "image-folder"}}, "pictures"), str(home))


def test_a_pooled_set_is_the_test_set_and_then_the_other():
    sizes = {"train": {"samples": 5}, "test": {"samples": 6}}
    shift = {"options": {"shift": "texture"}}
    data = {"layout": "scenes", "options": {"size": 16}, "split_options": sizes}
    data["also"] = {"texture": shift, "mixed": shift | {"pool": True}}
    sets = load_sets(check_recipe({"data": data, "model": {"name": "small_cnn"}}, "scenes"))
    mixed, texture = sets.also["mixed"], sets.also["texture"]
    assert len(set(mixed.ids)) == len(mixed) == 12
    assert np.array_equal(mixed.labels, np.concatenate([sets.test.labels, texture.labels]))
    pixels = [np.concatenate([part.inputs.pixels for part in (sets.test, texture)]), mixed.inputs.pixels]
    assert pixels[0].shape == (12, 16, 16, 3)
    assert np.array_equal(*pixels)
    assert not np.array_equal(sets.test.inputs.pixels, texture.inputs.pixels)


def test_a_recipe_without_pooling_keeps_its_key():
    """The key of a run of today, as it was before sets could be pooled."""
    also = {"texture": {"options": {"shift": "texture"}}}
    keys = [
        check_recipe({"data": {"layout": "scenes", "also": also}, "model": {"name": "small_cnn"}}, "scenes").key,
        check_recipe(
            {"data": {"layout": "scenes", "also": {"texture": also["texture"] | {"pool": True}}},
             "model": {"name": "small_cnn"}}, "scenes").key,
    ]  # fmt: skip
    assert keys[0] == "bc49e41083f81cc9"
    assert keys[1] != keys[0]


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
    assert recipe.key == digits(also=also | {"again": {"layout": "image-folder"}}).key  # wherever it lies
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


def test_classes_are_matched_by_name_before_position():
    pixels = ImageArray(np.zeros((3, 2, 2, 3), dtype=np.uint8))
    some = Dataset("some", "test", ("b", "c"), tuple("xyz"), [0, 1, -1], pixels)
    assert align_classes(some, ("a", "b", "c")).labels.tolist() == [1, 2, -1]
    numbers = Dataset("numbers", "test", ("1", "10", "2"), tuple("xyz"), [0, 1, 2], pixels)
    assert align_classes(numbers, tuple("abcdefghijk")).labels.tolist() == [1, 10, 2]
    assert align_classes(numbers, ("2", "10", "1")).labels.tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match=facts("'b'", "2")):
        align_classes(some, ("c", "d"))
    with pytest.raises(ValueError, match=facts("10", "3")):
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
    with pytest.raises(ValueError, match=facts("val")):
        predict_run(tmp_path / "run", split="val")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"keep": "best"}, "data": {"layout": "digits"}}, facts("best")),
        ({"targets": {"name": "adaptive"}}, facts("adaptive", "boxes")),
        ({"data": {"layout": "mnist"}}, facts("--data", "DIR")),
    ],
    ids=["best", "adaptive", "nowhere"],
)
def test_nothing_is_passed_over_in_silence(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(check_recipe(DIGITS | changes, "digits"), tmp_path / "run")
    assert not (tmp_path / "run").exists()  # a better recipe finds the way free


def test_recipes_read_alike_if_only_what_follows_the_reading_differs():
    def plan(seed=0, **data):
        return check_recipe({"data": {"layout": "scenes", **data}, "model": {"name": "mlp"}, "seed": seed}, "a recipe")

    assert have_same_data(plan(), plan(seed=1, context_rate=0.2, steps=[{"step": "resize", "size": 8}]))
    assert not have_same_data(plan(), plan(options={"size": 16}))
    assert not have_same_data(plan(), plan(test="val"))
    assert not have_same_data(plan(resample=True), plan(seed=1, resample=True))


def test_labels_of_the_parts_are_matched_by_name():
    """A test file that lists its classes in another order has the same labels all the same."""
    test = Dataset("t", "test", ("dog", "cat"), ("a", "b", "c"), [0, 1, 0], Rows(np.zeros((3, 2))))
    assert align_classes(test, ("cat", "dog"), by_position=False).labels.tolist() == [1, 0, 1]
    numbered = Dataset("t", "test", ("0", "1"), ("a", "b", "c"), [0, 1, 0], Rows(np.zeros((3, 2))))
    assert align_classes(numbered, ("cat", "dog")).labels.tolist() == [0, 1, 0]  # another data set, by position
    with pytest.raises(ValueError, match=facts("'0'", "2")):
        align_classes(numbered, ("1", "2"), by_position=False)


def test_ids_are_found_by_their_ends():
    ids = ("test/a/01.png", "test/b/01.png", "test/b/02.png")
    assert [index_of(ids, name, "d") for name in ("test/b/01.png", "b/01.png", "02", "2.png")] == [1, 1, 2, 2]
    with pytest.raises(ValueError, match=facts("2", "01")):
        index_of(ids, "01", "d")


def texts_run(tmp_path, **text):
    """A short run on texts: its data, and the vectors of its words."""
    data = recipe_data.written("newsgroups", tmp_path / "data")
    settings = {
        "data": {"layout": "newsgroups", "text": {"length": 30} | text},
        "model": {"name": "gpcn"},
        "optimiser": {"name": "adam", "rate": 0.01},
        "training": {"batch_size": 2, "max_steps": 2},
    }
    train(check_recipe(settings, "here"), tmp_path / "run", data=str(data))
    model, shape, classes = load_model(tmp_path / "run")
    assert shape == [30]
    assert len(classes) > 1
    return data, model.embedding.weight.detach()


def test_word_vectors_of_a_file_start_the_embedding_and_are_frozen(tmp_path):
    data = recipe_data.written("newsgroups", tmp_path / "data")
    words = sorted({word for sample in read(data, "train") for word in tokens(sample.input)})
    lines = [f"{word} {i}.5 {-i}.25 0.125" for i, word in enumerate(words)]
    (tmp_path / "glove.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _, vectors = texts_run(tmp_path, vocabulary=50, vectors=str(tmp_path / "glove.txt"), dimensions=3)
    first = vectors[2].tolist()  # 0 and 1 are padding and unknown words
    assert [abs(first[0]) % 1, abs(first[1]) % 1, first[2]] == [0.5, 0.25, 0.125]


def test_vectors_learned_from_the_training_texts_start_the_embedding_and_are_frozen(tmp_path):
    data, vectors = texts_run(tmp_path, vocabulary=40, learn_vectors=True, dimensions=5)
    messages = read(data, "train")
    vocabulary = Vocabulary.build((sample.input for sample in messages), size=40)
    rows = np.stack([vocabulary.encode(sample.input, 30) for sample in messages])
    np.testing.assert_allclose(vectors, learn_vectors(rows, len(vocabulary), 5), atol=1e-6)
    with pytest.raises(ValueError, match=facts("learn_vectors")):
        texts_run(tmp_path, learn_vectors=True, vectors="glove.txt")


@pytest.mark.parametrize("name", ["small/camvid", "small/newsgroups_gpcn"])
def test_mixing_is_refused_where_it_would_do_nothing(name, tmp_path):
    few = {"small/camvid": [], "small/newsgroups_gpcn": ["data.hold_out.count=2"]}[name]
    recipe = load(name, ["mixing.name=cutmix", "training.batch_size=2", *few])
    data = recipe_data.written(recipe.data.layout, tmp_path / "data")
    with pytest.raises(ValueError, match=facts("mixing")):
        train(recipe, tmp_path / "run", data=str(data))
