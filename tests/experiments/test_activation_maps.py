"""Maps of single images: Grad-CAM++ against NumPy and loops; confidence against the logits of the predictions."""

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from calibrant import Predictions
from calibrant.data import Boxes, Dataset, ImageArray, context_only
from calibrant.experiments import image_maps, named_runs
from calibrant.experiments.activation_maps import (
    ChosenImages,
    activation_maps,
    box_mask,
    check_network,
    map_images,
    mass_inside,
    study_activation_maps,
)
from calibrant.experiments.pixel_maps import Normalisation
from calibrant.report import write_maps_page
from calibrant.training import DataSets, OpenedRun, RunFolder, check_recipe, open_run, predict_run
from tests.helpers.errors import facts
from tests.helpers.scene_runs import SCENES, train_scenes

pytestmark = pytest.mark.slow

CLASSES, CHANNELS, HIDDEN, GRID = 3, 4, 5, 2


class Tiny(nn.Module):
    """A convolution with stride 3 and ReLU, the mean over positions, a hidden layer: gradients are a few lines."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, stride=3), nn.ReLU())
        self.hidden, self.out = nn.Linear(CHANNELS, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(self.block(x).mean((2, 3)))))


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(4)
    return Tiny().eval()


def by_hand(model, image, chosen=None):
    """Map [h, w] before any scaling, and logits, in NumPy: forward and backward passes written out."""
    weights = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    kernel, size = weights["block.0.weight"], image.shape[1] // 3
    features = np.zeros((CHANNELS, size, size))
    for k in range(CHANNELS):
        for i in range(size):
            for j in range(size):
                patch = image[:, 3 * i : 3 * i + 3, 3 * j : 3 * j + 3]
                features[k, i, j] = max(0.0, (patch * kernel[k]).sum() + weights["block.0.bias"][k])
    before = weights["hidden.weight"] @ features.mean((1, 2)) + weights["hidden.bias"]
    logits = weights["out.weight"] @ np.maximum(before, 0) + weights["out.bias"]
    c = int(logits.argmax()) if chosen is None else chosen
    by_channel = (weights["out.weight"][c] * (before > 0)) @ weights["hidden.weight"] / size**2
    g = np.broadcast_to(by_channel[:, None, None], features.shape)
    alpha = g**2 / (2 * g**2 + features.sum((1, 2), keepdims=True) * g**3 + 1e-6)
    w = (alpha * np.maximum(g, 0)).sum((1, 2))
    return np.maximum((w[:, None, None] * features).sum(0), 0), logits


def scaled(heat):
    return (heat - heat.min()) / (1e-7 + heat.max() - heat.min())


@pytest.mark.parametrize("chosen", [None, 1])
def test_maps_are_those_of_the_formula(tiny, chosen):
    images = np.random.default_rng(2).normal(size=(7, 3, 3 * 4, 3 * 4))
    inputs = torch.from_numpy(images).float()
    heat, logits = activation_maps(tiny, tiny.block, inputs, None if chosen is None else [chosen] * 7)
    assert heat.shape == (7, 12, 12)
    for k, image in enumerate(images):
        expected, expected_logits = by_hand(tiny, image, chosen)
        np.testing.assert_allclose(logits[k], expected_logits, atol=1e-5)
        large = scaled(cv2.resize(scaled(expected).astype(np.float32), (12, 12)))
        np.testing.assert_allclose(heat[k], large, atol=2e-4)


def test_a_map_does_not_depend_on_its_batch_and_leaves_no_gradients(tiny):
    inputs = torch.randn(5, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    together, _ = activation_maps(tiny, tiny.block, inputs)
    alone = [activation_maps(tiny, tiny.block, inputs[k : k + 1])[0][0] for k in range(5)]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert all(parameter.grad is None for parameter in tiny.parameters())
    assert not tiny.block._forward_hooks


def test_mass_inside_boxes_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    heat = rng.random((9, 13))
    boxes = np.array([[1.2, 0.4, 6.5, 4.6], [5.0, 3.0, 12.9, 5.5]])
    mask = [[any(a <= x + 0.5 < c and b <= y + 0.5 < d for a, b, c, d in boxes) for x in range(13)] for y in range(9)]
    assert box_mask(boxes, heat.shape).tolist() == mask
    assert mass_inside(heat, np.array(mask)) == pytest.approx(heat[np.array(mask)].sum() / heat.sum(), rel=1e-12)
    assert np.isnan(mass_inside(np.zeros((9, 13)), np.array(mask)))
    assert np.isnan(mass_inside(heat, box_mask(np.zeros((0, 4)), (9, 13))))


def opened(model, dataset, **data):
    recipe = check_recipe({"data": {"layout": "scenes", **data}, "model": {"name": "small_cnn"}}, "tiny")
    return OpenedRun(recipe, model, dataset, torch.device("cpu"), DataSets(dataset, None, dataset, {}))


def test_boxes_follow_the_crop_and_the_map_is_measured_on_what_the_network_sees(tiny):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 24, 24, 3), dtype=np.uint8)
    boxes = Boxes.of([[[6, 6, 18, 12]], [[0, 0, 3, 3]], []])
    data = Dataset("toy", "test", ("a", "b", "c"), ("x", "y", "z"), [0, 1, 2], ImageArray(pixels), boxes)
    run = opened(tiny, data, steps=[{"step": "centre_crop", "size": 18}, {"step": "resize", "size": 12}])
    first, second, third = map_images(run, data, "block")
    # The crop begins at 3; 18 pixels become 12.
    np.testing.assert_allclose(first.boxes, [[2, 2, 10, 6]])
    assert first.heat.shape == (12, 12)
    assert first.inside == pytest.approx(first.heat[2:6, 2:10].sum() / first.heat.sum())
    assert first.area == pytest.approx(32 / 144)
    assert np.isnan(second.inside), "the object is out of sight"
    assert third.boxes is None
    assert first.probabilities.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [("blok", facts("'blok'", "'block'")), ("hidden", facts("'hidden'", "[N, C, h, w]", "[1, 5]"))],
)
def test_a_layer_without_a_map_is_refused(tiny, layer, sentence):
    pixels = np.zeros((2, 12, 12, 3), np.uint8)
    data = Dataset("toy", "test", ("a", "b", "c"), ("x", "y"), [0, 1], ImageArray(pixels))
    with pytest.raises(ValueError, match=sentence):
        list(map_images(opened(tiny, data), data, layer))


@pytest.mark.parametrize("model", ["mlp", "vit_s_16", "gpcn", "deeplabv3plus_small", "timm/resnet18"])
def test_networks_without_a_convolutional_block_are_refused(tmp_path, model):
    recipe = check_recipe({"data": {"layout": "scenes"}, "model": {"name": model}}, "a recipe")
    RunFolder(tmp_path).claim(recipe, None)
    with pytest.raises(ValueError, match=facts(model)):
        check_network(tmp_path)


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
    with pytest.raises(ValueError, match=facts("nowhere")):
        ChosenImages(ids=["nowhere"]).select_shown(dataset)


def test_a_set_without_visible_objects_has_maps_and_no_number(runs):
    study = study_activation_maps(runs, ChosenImages(count=1), split="context")
    assert (study.document["has_boxes"], study.document["measured"], study.document["area"]) == (False, 0, None)
    assert [row["context"] for row in study.document["rows"]] == [False]


def test_runs_on_other_images_are_refused(runs, tmp_path):
    data = SCENES["data"] | {"split_options": {"train": {"samples": 40}, "test": {"samples": 20}}}
    other = train_scenes(tmp_path / "other", data=data)
    with pytest.raises(ValueError, match=facts("other", "hard")):
        study_activation_maps({"hard": runs["hard"], "other": other}, ChosenImages(count=1, seed=0))


def test_maps_are_of_the_logits_of_the_run(mask_runs):
    maps = image_maps(mask_runs, "test-0-000003")
    whole = predict_run(mask_runs["ce"], whole_maps=True)
    assert isinstance(whole, Predictions)
    row = list(whole.ids).index("test-0-000003")
    logits, labels = np.asarray(whole.logits[row], np.float64), np.asarray(whole.labels[row])
    method = maps.methods[0]
    assert [one.name for one in maps.methods] == ["ce", "ls", "ls, alpha=0.2"]
    assert np.array_equal(method.predicted, logits.argmax(0))
    p = np.exp(logits - logits.max(0))
    confidence = (p / p.sum(0)).max(0)
    assert method.confidence == pytest.approx(confidence, abs=1e-6)
    counted = labels != 255
    wrong = counted & (logits.argmax(0) != labels)
    assert np.array_equal(method.wrong, wrong)
    assert maps.pixels == counted.sum()
    assert method.numbers["accuracy"] == pytest.approx(1 - wrong.sum() / counted.sum())
    y, x = np.argwhere(wrong)[len(np.argwhere(wrong)) // 2]
    surer = (method.confidence[counted] > method.confidence[y, x]).mean()
    assert method.rank[y, x] == pytest.approx(surer)
    assert method.numbers["wrong_rank"] == pytest.approx(method.rank[wrong].mean())
    iou = []
    for k in range(logits.shape[0]):
        either = ((labels == k) | (logits.argmax(0) == k)) & counted
        if either.any():
            iou.append(((labels == k) & (logits.argmax(0) == k)).sum() / either.sum())
    assert method.numbers["mean_iou"] == pytest.approx(np.mean(iou))
    counts = np.array(method.reliability["count"])
    bins = zip(method.reliability["confidence"], method.reliability["accuracy"], strict=True)
    gaps = [abs(c - a) for c, a in bins if c is not None]
    assert method.numbers["ece"] == pytest.approx(np.dot(counts[counts > 0], gaps) / counts.sum(), abs=1e-9)


def test_the_page_has_every_map_of_every_method(mask_runs, tmp_path):
    write_maps_page(tmp_path / "maps.html", image_maps(mask_runs, "000003"), created="today", command="calibrant maps")
    page = (tmp_path / "maps.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2 + 4 * 3
    assert page.count("Reliability diagram of") >= 2


def test_runs_are_named_and_wrong_ones_refused(mask_runs, tmp_path):
    assert named_runs([f"mine={mask_runs['ce']}", str(mask_runs["ls"])]) == {
        "mine": mask_runs["ce"],
        "ls": mask_runs["ls"],
    }
    twice = named_runs([str(mask_runs["ce"]), str(mask_runs["ce"])])
    assert list(twice) == ["ce", f"ce, {mask_runs['ce'].name}"]
    with pytest.raises(ValueError, match=facts(str(tmp_path))):
        named_runs([str(tmp_path)])
    with pytest.raises(ValueError, match=facts("nothing")):
        image_maps(mask_runs, "nothing")
    with pytest.raises(ValueError, match=facts("'0'")):
        image_maps(mask_runs, "0")


def test_normalisation_is_chosen_also_where_the_confidence_is_better():
    random = np.random.default_rng(0)
    logits = 3 * random.normal(size=(600, 4))
    labels = (logits + random.gumbel(size=logits.shape)).argmax(1)  # confidence is the truth: nothing ranks better
    norm = Normalisation.fit_best(logits, labels)
    assert not norm.is_better
    v = logits - logits.mean(1, keepdims=True) if norm.centre else logits
    expected = v.max(1) / (np.abs(v) ** norm.p).sum(1) ** (1 / norm.p)
    assert norm.score(logits) == pytest.approx(expected)
