"""Segmentation and detection against torchvision and the papers' parts; texts against a slow NumPy version."""

import numpy as np
import pytest
import torch
from torch import nn

from calibrant import _torchvision
from calibrant.models import build
from tests.helpers.networks import SEGMENTATION, count, on_meta, saved

_torchvision.ensure()
import torchvision  # noqa: E402


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_deeplabv3plus_has_the_parts_of_chen_2018():
    def layer(inputs, outputs, kernel):  # a convolution without bias, batch norm
        return kernel * kernel * inputs * outputs + 2 * outputs

    backbone = 44_549_160 - 2049 * 1000  # torchvision's ResNet-101 without its head
    pyramid = 2 * layer(2048, 256, 1) + 3 * layer(2048, 256, 3) + layer(5 * 256, 256, 1)
    decoder = layer(256, 48, 1) + layer(256 + 48, 256, 3) + layer(256, 256, 3)
    model = on_meta("deeplabv3plus_resnet101")
    assert count(model) == backbone + pyramid + decoder + 257 * 19
    assert [part[0].dilation[0] for part in model.aspp.convs[1:4]] == [6, 12, 18]
    assert model.backbone(torch.empty(1, 3, 64, 96, device="meta"))["out"].shape == (1, 2048, 4, 6)  # stride 16


@pytest.mark.parametrize("name", SEGMENTATION)
def test_segmentation_gives_logits_of_every_pixel(name):
    images = torch.empty(2, 3, 67, 98, device="meta")
    assert on_meta(name, num_classes=5)(images).shape == (2, 5, 67, 98)
    stride = 4 if "plus" in name else 8
    small = on_meta(name, num_classes=5, upsample=False)(images)
    assert small.shape == (2, 5, -(-67 // stride), -(-98 // stride))


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


def test_deeplabv3_gives_torchvisions_logits():
    theirs = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=5)
    model = build("deeplabv3_resnet50", num_classes=5).eval()
    model.load_state_dict(theirs.state_dict())
    images = torch.randn(1, 3, 33, 41)
    torch.testing.assert_close(model(images), theirs.eval()(images)["out"])


def test_a_classifier_becomes_a_backbone(tmp_path):
    classifier = build("resnet50", num_classes=3)
    nn.init.normal_(classifier.bn1.running_mean)
    path = saved(tmp_path / "a.safetensors", classifier)
    plus = build("deeplabv3plus_resnet50", backbone_weights=path)
    detector = build("fasterrcnn_resnet50_fpn", backbone_weights=path)
    for body in (plus.backbone, detector.backbone.body):
        assert torch.equal(body.bn1.running_mean, classifier.bn1.running_mean)
        assert torch.equal(body.layer4[2].conv3.weight, classifier.layer4[2].conv3.weight)
    frozen = {key.split(".")[2] for key, p in detector.named_parameters() if not p.requires_grad}
    assert frozen == {"conv1", "layer1"}  # torchvision's default: three of five parts are trained


_torchvision.ensure()


def slow_gpcn(model, x):
    """NumPy, window by window, from the description in MbLS's released code."""
    get = {name: p.detach().numpy() for name, p in model.named_parameters()}

    def windows(x):  # [L, D] to [L - 4, 5, D]
        return np.stack([x[i : i + 5] for i in range(len(x) - 4)])

    rows = []
    for one in x:
        for layer in ("conv1", "conv2", "conv3"):
            one = np.einsum("lkd,odk->lo", windows(one), get[f"{layer}.weight"]) + get[f"{layer}.bias"]
            one = np.maximum(one, 0)
            if layer != "conv3":
                one = windows(one).max(1)
        one = np.maximum(get["fc1.weight"] @ one.max(0) + get["fc1.bias"], 0)
        rows.append(get["fc2.weight"] @ one + get["fc2.bias"])
    return np.stack(rows)


@pytest.mark.parametrize("length", [21, 30])
def test_gpcn_is_the_released_network(length):
    rng = np.random.default_rng(0)
    vectors, words = rng.integers(-9, 9, size=(11, 6)) / 8, rng.integers(0, 11, size=(3, length))
    plain = build("gpcn", dimensions=6, num_classes=4).double()
    model = build("gpcn", vectors=vectors, num_classes=4).double()
    model.load_state_dict(plain.state_dict(), strict=False)
    expected = slow_gpcn(plain, vectors[words])
    np.testing.assert_allclose(model(torch.from_numpy(words)).detach(), expected, atol=1e-12)
    np.testing.assert_allclose(plain(torch.from_numpy(vectors[words])).detach(), expected, atol=1e-12)


def test_gpcn_freezes_given_vectors_unless_told_otherwise():
    vectors = np.ones((5, 3), np.float32)
    given, told = build("gpcn", vectors=vectors), build("gpcn", vectors=vectors, frozen=False)
    random, kept = build("gpcn", vocabulary_size=5), build("gpcn", vocabulary_size=5, frozen=True)
    assert [one.embedding.weight.requires_grad for one in (given, told, random, kept)] == [False, True, True, False]
    given(torch.randint(0, 5, (3, 25))).square().sum().backward()
    assert [key for key, p in given.named_parameters() if p.grad is None] == ["embedding.weight"]
    assert count(given) - 15 == 247_316 - 97 * 128 * 5  # three dimensions for a hundred
    for wrong, words in [
        ({"vectors": np.ones(3)}, r"must be a table \[V, D\] of numbers, got shape \[3\]"),
        ({"vectors": vectors, "vocabulary_size": 6}, "vectors has 5 rows, and vocabulary_size is 6"),
        ({"vectors": (vectors, 0.5)}, r"must be a table \[V, D\] of numbers, got tuple"),
        ({"frozen": True}, "frozen=True is about an embedding"),
        ({"vectors": vectors, "frozen": 1}, "frozen must be True or False, got 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            build("gpcn", **wrong)
    for model, texts, words in [
        (given, torch.zeros(2, 20, dtype=torch.long), "at least 21 words, padding included, got 20"),
        (given, torch.zeros(2, 30), r"word indices \[N, L\], got torch.float32"),
        (build("gpcn"), torch.zeros(2, 30), r"word vectors \[N, L, 100\], got shape \[2, 30\]"),
    ]:
        with pytest.raises(ValueError, match=words):
            model(texts)


def test_word_vectors_start_short_and_padding_is_zero():
    """Vectors of deviation 1 would hardly change within an epoch of Adam's steps."""
    weight = build("gpcn", num_classes=20, vocabulary_size=3000).embedding.weight.detach()
    assert weight[1:].std().item() == pytest.approx(0.1, rel=0.02)
    assert not weight[0].any()
