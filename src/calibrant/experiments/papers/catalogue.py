"""The tables and figures of the papers: name, title, recipes and time of each; nothing heavy is imported to list them.

What makes an item is a function in its paper's module, with the decorator `calibrant.experiments.papers.registry.item`;
it is imported when the item is made.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from calibrant.base.checks import did_you_mean

#: The papers, each with a module of this package by its name in lower case.
PAPERS = ("ALS", "ACLS", "MbLS", "LR", "SC")
#: The page of an item, in its folder.
PAGE = "index.html"

#: Makers of items by name: functions of a `Workbench` that return an `Output`.
MAKERS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class PaperItem:
    """A table or figure of a paper.

    Attributes:
        name: ``"acls.table3"``.
        title: What it shows.
        recipes: The recipes whose runs it needs; none if it needs no training.
        minutes: Approximate time of ``--small`` on two cores.
        section: The section of the paper, if it is a number in the text.
    """

    name: str
    title: str
    recipes: tuple[str, ...]
    minutes: float
    section: str = ""

    @property
    def make(self) -> Callable[..., Any]:
        """The function that makes it, of a workbench; the paper's module is imported."""
        importlib.import_module(f"calibrant.experiments.papers.{self.paper.lower()}")
        return MAKERS[self.name]

    @property
    def paper(self) -> str:
        """The paper's short name."""
        return next(paper for paper in PAPERS if paper.lower() == self.name.partition(".")[0])

    @property
    def kind(self) -> Literal["figure", "table", "text"]:
        """What the paper prints it as."""
        return "text" if self.section else "figure" if ".fig" in self.name else "table"

    @property
    def stem(self) -> str:
        """Its name without the paper's, which begins the names of its files: ``"table3"``."""
        return self.name.partition(".")[2]

    @property
    def number(self) -> str:
        """Its number in the paper; of an appendix, its letter."""
        return self.stem.removeprefix("fig").removeprefix("table").upper()

    @property
    def place(self) -> str:
        """Its position in the paper: ``"ACLS, Table 3"``."""
        word = "Fig." if self.kind == "figure" else "Table"
        return f"{self.paper}, {self.section or f'{word} {self.number}'}"


_CLASSIFICATION = (
    "acls_cifar10_resnet50", "acls_cifar10_resnet101", "acls_tiny_imagenet_resnet50", "acls_tiny_imagenet_resnet101",
    "acls_imagenet_resnet50",
)  # fmt: skip
_LR_TABLE1 = ("lr_mnist_mlp", "lr_fashion_mnist_mlp")
_LR_TABLE2 = tuple(
    f"lr_{data}_{model}" for model in ("vgg16", "resnet56v2", "densenet") for data in ("cifar10", "cifar100")
)
_MBLS_TABLE1 = ("mbls_tiny_imagenet_resnet50", "mbls_cifar10_resnet50", "mbls_cub_resnet101", "mbls_20news_gpcn")

_ALL = (
    # ALS
    PaperItem("als.fig3", "Confidence follows the size of the object", ("als_imagenet",), 1),
    PaperItem("als.fig6", "Where networks look, with and without the objects", ("als_imagenet",), 5),
    PaperItem("als.fig7", "Where networks look, and what they say", ("als_imagenet",), 5),
    PaperItem("als.fig8", "Where networks look: more images", ("als_imagenet",), 5),
    PaperItem("als.table1", "Confidence on images without their objects", ("als_imagenet",), 1),
    PaperItem("als.table2", "ImageNet and V2, ResNet-50, beta from 0 to 1", ("als_imagenet",), 1.5),
    PaperItem("als.table3", "ImageNet and V2, ResNet-101", ("als_imagenet",), 0.5),
    PaperItem("als.table4", "Detectors on COCO, by the classifier they start from", ("als_detection_coco",), 12),
    PaperItem("als.table5", "Every method on ImageNet and V2", ("als_imagenet",), 2),
    PaperItem("als.table6", "OpenImages", ("als_open_images",), 1),
    PaperItem("als.table7", "Detectors on COCO, by training set and size of object", ("als_detection_coco",), 8),
    # ACLS
    PaperItem("acls.fig3", "The regulariser over samples, by condition", ("acls_tiny_imagenet_resnet50",), 0.5),
    PaperItem("acls.figa", "ECE over the margin", ("acls_tiny_imagenet_resnet50",), 2),
    PaperItem("acls.table3", "Accuracy, ECE and AECE of eleven losses", _CLASSIFICATION, 2),
    PaperItem("acls.table4", "Mean IoU, ECE and AECE of six losses on segmentation", ("acls_voc_deeplabv3",), 4),
    PaperItem(
        "acls.table5",
        "The adaptive and the conditional part alone",
        ("acls_tiny_imagenet_resnet50", "acls_tiny_imagenet_resnet101"),
        1.5,
    ),
    PaperItem("acls.table6", "Ranking or margin as the condition", ("acls_tiny_imagenet_resnet50",), 1),
    PaperItem("acls.tablea", "Accuracy and ECE over lambda1 and lambda2", ("acls_tiny_imagenet_resnet50",), 3),
    PaperItem("acls.tableb", "Other ways to calibrate, 10 and 15 bins", ("acls_tiny_imagenet_resnet50",), 1),
    PaperItem(
        "acls.altered",
        "Predictions that a step of the loss would alter",
        ("acls_tiny_imagenet_resnet50",),
        0.5,
        section="Sec. 4.3, limitation",
    ),
    PaperItem(
        "acls.flsd",
        "FLSD's gamma: how many samples have which",
        ("acls_tiny_imagenet_resnet50",),
        0.5,
        section="Supplement S1.1",
    ),
    # MbLS
    PaperItem("mbls.fig1", "Accuracy and ECE over the balancing weight", ("mbls_tiny_imagenet_resnet50",), 3.5),
    PaperItem("mbls.fig2", "Reliability with 25 bins, and a part enlarged", ("mbls_tiny_imagenet_resnet50",), 1),
    PaperItem("mbls.fig3", "Confidence maps and reliability of one image", ("mbls_voc_deeplabv3",), 4),
    PaperItem("mbls.table1", "ECE before and after temperature scaling", _MBLS_TABLE1, 1),
    PaperItem(
        "mbls.table2", "Accuracy and ECE with a vision transformer", ("mbls_cifar10_vit", "mbls_tiny_imagenet_vit"), 1
    ),
    PaperItem(
        "mbls.voc", "Mean IoU, ECE and AECE on PASCAL VOC", ("mbls_voc_deeplabv3",), 4, section="appendix B, VOC"
    ),
    # LR
    PaperItem("lr.fig1", "Smoothing and relaxation in the simplex", (), 0.1),
    PaperItem("lr.fig2", "Losses of two classes by the label's probability", (), 0.1),
    PaperItem("lr.table1", "Five losses on MNIST and Fashion-MNIST, tuned", _LR_TABLE1, 3.5),
    PaperItem("lr.table2", "Five losses on CIFAR, three networks, tuned", _LR_TABLE2, 3.5),
    PaperItem("lr.table3", "Average ranks of the losses over all data sets", (*_LR_TABLE1, *_LR_TABLE2), 7),
    # SC
    PaperItem(
        "sc.fig1", "Risk against coverage by level of label smoothing, ResNet-50", ("sc_imagenet_resnet50",), 0.8
    ),
    PaperItem("sc.fig4", "Risk against coverage by level of label smoothing, ViT-S/16", ("sc_imagenet_vit_s16",), 0.8),
    PaperItem(
        "sc.fig5",
        "Overconfident errors of the model with label smoothing, and both models' ranks",
        ("sc_imagenet_resnet50",),
        0.8,
    ),
    PaperItem(
        "sc.fig6", "Uncertainty of wrong pixels with and without label smoothing", ("sc_cityscapes_deeplabv3plus",), 2
    ),
    PaperItem("sc.fig7", "The regularisation gradient of label smoothing by the probability of an error", (), 0.1),
    PaperItem(
        "sc.fig8",
        "Pooled with sketches: risk against coverage, and where the accepted errors come from, ResNet-50",
        ("sc_imagenet_resnet50",),
        0.8,
    ),
    PaperItem(
        "sc.fig9",
        "Logit normalisation, and the largest logit given the MSP, ResNet-50 and ViT-S/16",
        ("sc_imagenet_resnet50", "sc_imagenet_vit_s16"),
        0.8,
    ),
    PaperItem("sc.fig10", "Uncertainty of wrong pixels with logit normalisation", ("sc_cityscapes_deeplabv3plus",), 2),
    PaperItem(
        "sc.fig11",
        "Pooled with sketches: risk against coverage, and where the accepted errors come from, ViT-S/16",
        ("sc_imagenet_vit_s16",),
        0.8,
    ),
    PaperItem(
        "sc.fig12",
        "Risk against coverage before and after logit normalisation, DeepLabV3+",
        ("sc_cityscapes_deeplabv3plus",),
        0.8,
    ),
    PaperItem(
        "sc.fig13",
        "The largest logit given the MSP, right and wrong predictions, ViT-S/16",
        ("sc_imagenet_vit_s16",),
        0.8,
    ),
    PaperItem(
        "sc.fig14",
        "The largest logit given the MSP, right and wrong predictions, DeepLabV3+",
        ("sc_cityscapes_deeplabv3plus",),
        0.8,
    ),
    PaperItem(
        "sc.fig15", "Risk against coverage by level of label smoothing, DenseNet", ("sc_cifar100_densenet",), 0.8
    ),
    PaperItem(
        "sc.fig16",
        "Risk against coverage before and after logit normalisation, DenseNet",
        ("sc_cifar100_densenet",),
        0.8,
    ),
    PaperItem(
        "sc.fig17",
        "The largest logit given the MSP, right and wrong predictions, DenseNet",
        ("sc_cifar100_densenet",),
        0.8,
    ),
    PaperItem(
        "sc.fig18",
        "Sorted logits, their fifth power and their exponential, alpha = 0.2",
        ("sc_imagenet_resnet50",),
        0.8,
    ),
    PaperItem(
        "sc.fig19",
        "The normalised largest logit given the largest, for similar MSPs, alpha = 0.2",
        ("sc_imagenet_resnet50",),
        0.8,
    ),
)


def items() -> dict[str, PaperItem]:
    """Every table and figure, in the order of the papers and of their pages.

    Example:
        >>> items()["lr.fig2"].place
        'LR, Fig. 2'
    """
    return {item.name: item for item in sorted(_ALL, key=_position)}


def _position(item: PaperItem) -> tuple[int, str, int, str]:
    """Paper, then figures and tables by their numbers; those of appendices have letters and come last."""
    number = re.search(r"\d+", item.stem)
    return PAPERS.index(item.paper), item.kind, int(number[0]) if number else len(_ALL) + 100, item.name


def find_item(name: str) -> PaperItem:
    """The item of a name; an error with the nearest names if there is none."""
    every = items()
    if name.lower() not in every:
        hint = did_you_mean(name, every)
        raise ValueError(f"no table or figure is called {name[:80]!r}; calibrant paper list shows them{hint}")
    return every[name.lower()]
