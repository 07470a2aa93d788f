"""Backbones by name: runs and files of weights, and what is refused. Oracle: the tensors in the files."""

import pytest
import torch

from calibrant.detection import plan_run, read_backbones
from calibrant.detection.backbones import check_detection
from calibrant.detection.task import make_detector
from calibrant.training import checkpoints, load, train
from tests.helpers.drawn_objects import weights_file

CLASSIFIER = """
[data]
layout = "scenes"
options = { samples = 32 }
mean = [0.4]
[model]
name = "small_resnet"
width = 8
[training]
batch_size = 16
max_steps = 1
"""


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The run of a classifier on scenes."""
    folder = tmp_path_factory.mktemp("classifier")
    (folder / "recipe.toml").write_text(CLASSIFIER)
    train(load(folder / "recipe.toml"), folder / "run")
    return folder


@pytest.fixture
def recipe(drawn):
    return load(drawn / "recipe.toml")


def test_the_network_and_the_normalisation_are_those_of_the_run(classifier, recipe):
    (backbone,) = read_backbones([f"hard={classifier / 'run'}"], recipe)["hard"]
    plan = plan_run(recipe, backbone, 4)
    assert plan.seed == 4
    assert plan.detection.backbone == "hard"
    assert plan.data.normalisation == ((0.4,) * 3, (0.25,) * 3)
    stored = checkpoints.load(classifier / "run" / "model.safetensors")[0]["model"]
    detector = make_detector(plan, 2)
    assert torch.equal(detector.backbone.stem[0].weight, stored["trunk.conv1.weight"])
    assert torch.equal(detector.backbone.stem[1].running_mean, stored["trunk.bn1.running_mean"])


def test_a_run_depends_on_weights_and_not_on_where_they_lie_or_what_they_are_called(drawn, recipe, tmp_path):
    same = weights_file(tmp_path / "elsewhere.safetensors")
    other = weights_file(tmp_path / "other.safetensors", seed=1)
    texts = [f"a={drawn / 'weights.safetensors'}", f"b={same}", f"c={other}"]
    keys = [plan_run(recipe, runs[0], 0).key for runs in read_backbones(texts, recipe).values()]
    assert keys[0] == keys[1] != keys[2]


def test_a_name_may_have_several_runs(drawn, recipe, tmp_path):
    other = weights_file(tmp_path / "other.safetensors", seed=1)
    backbones = read_backbones([f"a={drawn / 'weights.safetensors'}", f"a={other}"], recipe)
    assert [b.weights for b in backbones["a"]] == [drawn / "weights.safetensors", other]


def test_names_of_methods_may_have_a_sign_of_equality(drawn):
    plan = load(drawn / "recipe.toml", ['methods={"als, beta=1"={}, als={}}'])
    file = drawn / "weights.safetensors"
    assert list(read_backbones([f"als, beta=1={file}", f"als={file}", f"b={file}"], plan)) == [
        "als, beta=1",
        "als",
        "b",
    ]


def test_refused(drawn, recipe, classifier, learned, tmp_path):
    def words(*texts, of=recipe):
        with pytest.raises(ValueError, match=r".") as error:
            read_backbones(texts, of)
        return str(error.value)

    assert "no backbone is given" in words()
    assert "takes NAME=RUN" in words("runs/hard")
    assert "neither the folder of a run nor a file" in words("a=/nowhere")
    assert "is a run of a detector" in words(f"a={learned[0]}")
    (tmp_path / "empty").mkdir()
    assert "not a run folder" in words(f"a={tmp_path / 'empty'}")
    flat = load(drawn / "recipe.toml", ["model={name='small_cnn'}"])
    from safetensors.torch import save_file

    from calibrant.models import build

    save_file(build("small_cnn", num_classes=3).state_dict(), str(tmp_path / "flat.safetensors"))
    assert "'small_cnn' cannot be the backbone of a detector: it must be a ResNet" in words(
        f"a={tmp_path / 'flat.safetensors'}", of=flat
    )
    wide = weights_file(tmp_path / "wide.safetensors", width=12)
    assert "weights have other shapes than the model's" in words(f"a={wide}")
    with pytest.raises(ValueError, match="is not a recipe for detection"):
        check_detection(load(classifier / "recipe.toml"), "classifier")


def test_an_unfinished_run_is_no_backbone(classifier, recipe):
    (classifier / "run" / "result.json").rename(classifier / "run" / "aside.json")
    try:
        with pytest.raises(ValueError, match="the run is not finished"):
            read_backbones([f"a={classifier / 'run'}"], recipe)
    finally:
        (classifier / "run" / "aside.json").rename(classifier / "run" / "result.json")


def test_the_task_needs_a_recipe_of_detection(classifier):
    with pytest.raises(ValueError, match=r"has no \[detection\]"):
        make_detector(load(classifier / "recipe.toml"), 2)
