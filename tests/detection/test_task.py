"""Detectors: their networks, and the training loop, which learns, resumes bit for bit and refuses what has no boxes.

Oracles: pixels of the drawn objects; tensors in the files of backbones; pycocotools over the detections that a run
wrote; a run that nothing interrupted; the published number of parameters.
"""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from calibrant.data import Boxes, Dataset, ImageArray, Pipeline, RandomFlip, Resize, image_to_view, read, view_to_image
from calibrant.data.transforms import CentreCrop, draw_view
from calibrant.detection import Detected, Detection, check_detection, coco_metrics, plan_run, read_backbones
from calibrant.detection.task import _images, _targets, is_object, is_single, make_detector
from calibrant.models import build, build_detector, describe, split_resnet
from calibrant.training import RunFolder, checkpoints, load, load_sets, train, training_pipeline
from tests.helpers.drawn_objects import COLOURS, weights_file
from tests.helpers.errors import facts

pytestmark = pytest.mark.slow


def tensors(folder):
    return checkpoints.load(folder / "model.safetensors")[0]["model"]


def test_objects_are_found(learned):
    _, result = learned
    assert result["sets"]["test"]["ap50"] > 0.15
    assert {"val", "test"} == set(result["sets"])
    first, last = result["history"][0], result["history"][-1]
    assert last["val_ap50"] > first["val_ap50"]


def test_the_numbers_are_those_of_the_detections_on_disk(learned, drawn):
    folder, result = learned
    document = json.loads((folder / "test-detections.json").read_text())
    data = read(drawn / "voc", "val", layout="voc")
    assert tuple(document["classes"]) == data.classes
    rows = [np.array(document["images"][name], float).reshape(-1, 6) for name in data.ids]
    metrics = coco_metrics(data, [Detected(r[:, :4], r[:, 4].astype(int), r[:, 5]) for r in rows])
    assert metrics["ap50"] == pytest.approx(result["sets"]["test"]["ap50"], abs=0.02)  # corners are rounded


def test_a_finished_run_is_left_as_it_is_and_its_log_has_the_four_losses(learned):
    folder, _ = learned
    run = RunFolder(folder)
    terms = [entry for entry in run.entries() if entry["event"] == "step"]
    names = ("loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg")
    for entry in terms:
        assert entry["loss"] == pytest.approx(sum(entry[name] for name in names), rel=1e-5)
    events = []
    train(run.recipe(), folder, resume=True, task=Detection(), event_log=lambda event, _: events.append(event))
    assert events == ["finished already"]


def test_what_was_interrupted_ends_bit_for_bit_as_what_was_not(plan, drawn, tmp_path):
    recipe = plan("training.epochs=2", "training.checkpoint_seconds=1e-9", "training.accumulate=2")
    train(recipe, tmp_path / "whole", data=str(drawn / "voc"), task=Detection())

    class KilledError(Exception):
        pass

    def kill(event, numbers):
        if event == "step" and numbers["step"] == 4:
            raise KilledError

    with pytest.raises(KilledError):
        train(recipe, tmp_path / "cut", data=str(drawn / "voc"), task=Detection(), event_log=kill)
    steps = []
    train(recipe, tmp_path / "cut", data=str(drawn / "voc"), task=Detection(), resume=True,
          event_log=lambda event, n: steps.append(n["step"]) if event == "step" else None)  # fmt: skip
    assert steps == [4]
    whole, cut = tensors(tmp_path / "whole"), tensors(tmp_path / "cut")
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_targets_are_single_objects_with_area(plan, drawn):
    sets = Detection().select(load_sets(plan(), str(drawn / "voc")))
    assert len(sets.train) == 23  # the image that shows nothing is not trained on
    pipeline = training_pipeline(plan(), sets.train, filled_up=Detection.filled_up)
    rows = [i for i, name in enumerate(sets.train.ids) if name.endswith(("i000.jpg", "i002.jpg"))]
    batch = pipeline.batch(rows)
    targets = _targets(sets.train, batch)
    assert [len(target["boxes"]) for target in targets] == [1, 1]  # the box without area is left out
    for image, target in zip(_images(batch, torch.float32), targets, strict=True):
        assert image.shape[1:] in {(32, 44), (32, 38), (44, 32)}
        x1, y1, x2, y2 = target["boxes"][0].round().int().tolist()
        colour = list(COLOURS)[sets.train.classes.index("red") != target["labels"][0] - 1]
        inside = image[:, y1 + 1 : y2 - 1, x1 + 1 : x2 - 1].mean((1, 2))
        assert torch.allclose(inside, torch.tensor(COLOURS[colour]) / 255, atol=0.1)


def test_a_pyramid_is_an_option(plan, drawn):
    recipe = plan("detection.pyramid=true", "detection.anchors=[8,12,16,24,32]")
    detector = make_detector(recipe, 2)
    losses = detector(
        [torch.rand(3, 40, 32)], [{"boxes": torch.tensor([[2.0, 3, 20, 24]]), "labels": torch.tensor([1])}]
    )
    sum(losses.values()).backward()
    assert detector.backbone.stages[0][0].conv1.weight.grad is not None


def test_a_detection_recipe_is_not_trained_as_a_classifier(plan, drawn, tmp_path):
    with pytest.raises(ValueError, match=facts("calibrant detect")):
        train(plan(), tmp_path / "run", data=str(drawn / "voc"))
    with pytest.raises(ValueError, match=facts("targets")):
        load(drawn / "recipe.toml", ["targets.name=adaptive"])


def drawn(box, size=(60, 40)):
    pixels = np.zeros((1, size[1], size[0], 3), dtype=np.uint8)
    x1, y1, x2, y2 = box
    pixels[0, y1:y2, x1:x2] = 255
    boxes = Boxes.of([[list(map(float, box))]], labels=[[0]])
    return Dataset("drawn", "test", ("white",), ("a",), [0], ImageArray(pixels), boxes)


@pytest.mark.parametrize(
    "steps",
    [[Resize(20)], [Resize(80, most=100), RandomFlip(1.0)], [CentreCrop((30, 24)), Resize((60, 72)), RandomFlip(1.0)]],
    ids=["smaller", "mirrored", "cropped"],
)
def test_a_box_is_where_its_pixels_are(steps):
    data = drawn((20, 10, 32, 30))
    batch = Pipeline(data, steps, filled_up=True).batch([0])
    (view,) = batch.views
    rows, columns = np.nonzero(batch.inputs[0, 0].numpy() > 127)
    seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(image_to_view(data.boxes.corners, view)[0], seen, atol=1.0)


def test_back_in_the_image_a_box_is_as_it_was():
    random = np.random.default_rng(3)
    for _ in range(20):
        size = tuple(int(side) for side in random.integers(30, 90, 2))
        view = draw_view([Resize(47, most=70), RandomFlip()], size, random)
        low = random.uniform(0, 0.5, (7, 2)) * size
        corners = np.concatenate([low, low + random.uniform(0, 0.5, (7, 2)) * size], axis=1)
        np.testing.assert_allclose(view_to_image(image_to_view(corners, view), view), corners, atol=1e-9)


def test_crowds_and_boxes_without_class_or_area_are_not_trained_on():
    boxes = Boxes.of(
        [[[0, 0, 4, 4], [0, 0, 4, 4], [1, 1, 1, 9], [2, 2, 5, 5]]], labels=[[0, -1, 0, 1]], crowd=[[0, 0, 0, 1]]
    )
    assert is_object(boxes).tolist() == [True, False, False, True]
    assert is_single(boxes).tolist() == [True, False, False, False]


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
    several = read_backbones([texts[0], f"a={other}"], recipe)["a"]
    assert [backbone.weights for backbone in several] == [drawn / "weights.safetensors", other]


def test_names_of_methods_may_have_a_sign_of_equality(drawn):
    plan = load(drawn / "recipe.toml", ['methods={"als, beta=1"={}, als={}}'])
    file = drawn / "weights.safetensors"
    assert list(read_backbones([f"als, beta=1={file}", f"als={file}", f"b={file}"], plan)) == [
        "als, beta=1",
        "als",
        "b",
    ]


def test_refused_backbones(drawn, recipe, classifier, learned, tmp_path):
    def words(*texts, of=recipe):
        with pytest.raises(ValueError, match=r".") as error:
            read_backbones(texts, of)
        return str(error.value)

    words()
    assert "NAME=RUN" in words("runs/hard")
    assert "/nowhere" in words("a=/nowhere")
    assert str(learned[0]) in words(f"a={learned[0]}")  # a detector's run
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in words(f"a={tmp_path / 'empty'}")
    flat = load(drawn / "recipe.toml", ["model={name='small_cnn'}"])
    save_file(build("small_cnn", num_classes=3).state_dict(), str(tmp_path / "flat.safetensors"))
    assert "'small_cnn'" in words(f"a={tmp_path / 'flat.safetensors'}", of=flat)
    wide = weights_file(tmp_path / "wide.safetensors", width=12)
    assert str(wide) in words(f"a={wide}")
    unfinished = shutil.copytree(classifier / "run", tmp_path / "unfinished")
    (unfinished / "result.json").unlink()
    assert "unfinished" in words(f"a={unfinished}")
    for use in (lambda plan: check_detection(plan, "classifier"), lambda plan: make_detector(plan, 2)):
        with pytest.raises(ValueError, match=facts("detection")):
            use(load(classifier / "recipe.toml"))


USUAL = {"mean": [0.5] * 3, "std": [0.25] * 3}


@pytest.mark.parametrize("name", ["resnet18", "small_resnet", "resnet20"])
def test_the_stages_are_the_whole_classifier_but_its_head(name):
    network = build(name, num_classes=3, seed=1).eval()
    stem, stages = split_resnet(network, name)
    x = torch.randn(2, 3, 64, 48)
    features = stem(x)
    for stage in stages:
        features = stage(features)
    torch.testing.assert_close(network.fc(features.mean((2, 3))), network(x), rtol=1e-4, atol=1e-5)


def test_a_pyramid_on_resnet50_has_the_published_size():
    with torch.device("meta"):
        network = build("resnet50", num_classes=2)
    network = network.to_empty(device="cpu")
    detector = build_detector(network, 90, name="resnet50", pyramid=True, anchors=(32, 64, 128, 256, 512), **USUAL)
    published = describe("fasterrcnn_resnet50_fpn").published
    assert sum(p.numel() for p in detector.parameters()) == published


def test_frozen_stages_and_batch_norm_are_not_trained():
    network = build("small_resnet", num_classes=2, width=4, seed=0)
    statistics = network.trunk.bn1.running_mean.clone()
    detector = build_detector(network, 3, name="small_resnet", anchors=(8, 16), frozen_stages=2, **USUAL)
    target = {"boxes": torch.tensor([[2.0, 3.0, 30.0, 31.0]]), "labels": torch.tensor([2])}
    losses = detector.train()([torch.rand(3, 64, 48)], [target])
    assert set(losses) == {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
    sum(losses.values()).backward()
    trained = {name.split(".")[2] for name, p in detector.named_parameters() if p.grad is not None and "stages" in name}
    assert trained == {"2"}  # the last stage is in the head
    assert detector.roi_heads.box_head.stage[0].conv1.weight.grad is not None
    assert torch.equal(detector.backbone.stem[1].running_mean, statistics)
    assert not [name for name, _ in detector.named_parameters() if "bn" in name]


def test_images_are_not_scaled_and_detections_are_in_their_pixels():
    network = build("small_resnet", num_classes=2, width=4, seed=0)
    detector = build_detector(network, 3, name="small_resnet", anchors=(8, 16), least_score=0.0, **USUAL).eval()
    seen = []
    detector.backbone.stem.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    with torch.no_grad():
        (output,) = detector([torch.rand(3, 40, 72)])
    assert seen == [torch.Size([1, 3, 64, 96])]  # filled up to multiples of 32
    assert (output["boxes"][:, 2] <= 72).all()
    assert (output["boxes"][:, 3] <= 40).all()
    assert set(output["labels"].tolist()) <= {1, 2, 3}


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"pyramid": True, "anchors": (8, 16)}, facts("anchors", "5", "2")), ({"frozen_stages": 5}, facts("4", "5"))],
)
def test_counts_must_fit(settings, words):
    with pytest.raises(ValueError, match=words):
        build_detector(build("small_resnet", num_classes=2, width=4), 3, name="small_resnet", **(USUAL | settings))


def test_detection_gives_losses_and_detections():
    model = build("fasterrcnn_resnet50_fpn", num_classes=4)
    model.transform.min_size, model.transform.max_size = (32,), 32
    target = {"boxes": torch.tensor([[4.0, 5.0, 20.0, 30.0]]), "labels": torch.tensor([3])}
    losses = model([torch.rand(3, 32, 32)], [target])
    assert set(losses) == {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
    assert all(torch.isfinite(value) for value in losses.values())
    with torch.no_grad():
        (found,) = model.eval()([torch.rand(3, 32, 32)])
    assert set(found) == {"boxes", "labels", "scores"}
