import numpy as np
import pytest

from calibrant.data import context_only
from calibrant.experiments.maps.activation_maps import map_images
from calibrant.experiments.maps.activation_study import ChosenImages, paired_change, study_activation_maps
from calibrant.training import open_run
from tests.helpers.scene_runs import SCENES, train_scenes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    adaptive = {"targets": {"name": "adaptive"}}
    return {"hard": train_scenes(folder / "hard"), "als": train_scenes(folder / "als", **adaptive)}


@pytest.fixture(scope="module")
def study(runs):
    return study_activation_maps(runs, ChosenImages(count=2, measured=12, seed=5))


def test_numbers_are_means_over_the_measured_images(runs, study):
    document = study.document
    rows = np.sort(np.random.default_rng(5).choice(30, 12, replace=False))
    for method in document["methods"]:
        run = open_run(runs[method["name"]])
        images = list(map_images(run, run.dataset.take(rows), "11"))
        inside = []
        for image in images:  # every pixel, box by box
            total = part = 0.0
            for y, line in enumerate(image.heat):
                for x, value in enumerate(line):
                    total += value
                    part += value * any(a <= x + 0.5 < c and b <= y + 0.5 < d for a, b, c, d in image.boxes)
            inside.append(part / total)
        np.testing.assert_allclose(study.shares[method["name"]], inside, rtol=1e-6)
        assert method["inside"]["value"] == pytest.approx(np.mean(inside), rel=1e-6)
        assert method["inside"]["low"] < method["inside"]["value"] < method["inside"]["high"]
        assert (method["images"], method["layer"], method["model"]) == (12, "11", "small_cnn")
    (pair,) = document["differences"]
    change = study.shares["als"] - study.shares["hard"]
    assert (pair["first"], pair["second"], pair["images"]) == ("hard", "als", 12)
    assert pair["value"] == pytest.approx(change.mean())
    assert document["measured"] == 12


def test_a_row_is_an_image_and_then_its_version_without_objects(runs, study):
    rows = study.document["rows"]
    assert [row["context"] for row in rows] == [False, True, False, True]
    assert rows[0]["id"] == rows[1]["id"] != rows[2]["id"]
    run = open_run(runs["hard"])
    number = run.dataset.ids.index(rows[1]["id"])
    covered = np.asarray(context_only(run.dataset).inputs[number])
    np.testing.assert_array_equal(study.pictures[1][0].pixels, covered)
    assert [len(cells) for cells in study.pictures] == [3] * 4


def test_the_most_likely_classes_are_those_of_the_runs_predictions(runs, study):
    from calibrant import Predictions

    for row in study.document["rows"]:
        file = "context.npz" if row["context"] else "test.npz"
        for said in row["methods"]:
            predictions = Predictions.open(runs[said["name"]] / file)
            at = list(predictions.ids).index(row["id"])
            z = np.asarray(predictions.logits[at], np.float64)
            p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            best = np.argsort(-p)[:3]
            assert [entry["class"] for entry in said["top"]] == [predictions.class_names[k] for k in best]
            assert [entry["confidence"] for entry in said["top"]] == pytest.approx(p[best], rel=1e-4)
            assert [entry["right"] for entry in said["top"]] == [k == predictions.labels[at] for k in best]
            assert row["label"] == predictions.class_names[predictions.labels[at]]


def test_images_are_the_first_or_drawn_or_named(runs):
    dataset = open_run(runs["hard"]).dataset
    assert ChosenImages(count=3).select_shown(dataset) == list(dataset.ids[:3])
    drawn = ChosenImages(count=3, seed=1).select_shown(dataset)
    assert drawn == ChosenImages(count=3, seed=1).select_shown(dataset) != list(dataset.ids[:3])
    assert ChosenImages(ids=[dataset.ids[7], dataset.ids[2]]).select_shown(dataset) == [dataset.ids[7], dataset.ids[2]]
    with pytest.raises(ValueError, match="has no image 'nowhere'"):
        ChosenImages(ids=["nowhere"]).select_shown(dataset)


def test_a_set_without_visible_objects_has_maps_and_no_number(runs):
    study = study_activation_maps(runs, ChosenImages(count=1), split="context")
    assert (study.document["has_boxes"], study.document["measured"], study.document["area"]) == (False, 0, None)
    assert [row["context"] for row in study.document["rows"]] == [False]


def test_runs_on_other_images_are_refused(runs, tmp_path):
    data = SCENES["data"] | {"split_options": {"train": {"samples": 40}, "test": {"samples": 20}}}
    other = train_scenes(tmp_path / "other", data=data)
    with pytest.raises(ValueError, match="other and hard have different images in this set"):
        study_activation_maps({"hard": runs["hard"], "other": other}, ChosenImages(count=1, seed=0))


def test_a_paired_change_is_over_images_that_have_both():
    first = np.array([0.5, np.nan, 0.25, *[0.5] * 10])
    second = np.array([0.75, 0.5, np.nan, *[0.5] * 10])
    change = paired_change(first, second)
    assert change["images"] == 11
    assert change["value"] == pytest.approx(0.25 / 11)
