"""The data sets of the papers: by which facts one is known, and where the folder of each is.

Layouts do not tell data sets apart: Fashion-MNIST has the files of MNIST, and a folder may hold a part of the samples.
A number stands in a paper's column only if it was measured on all of that column's data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from calibrant.base.checks import did_you_mean, listing
from calibrant.base.numbers import count
from calibrant.recipes import plain_recipe


@dataclass(frozen=True)
class PublishedData:
    """A data set as its authors published it, and as the papers use it.

    Attributes:
        name: As in ``--data NAME=DIR``.
        title: As papers write it.
        layout: How it is stored.
        classes: Number of classes.
        train: Number of training samples, those that a run holds out included; several where a paper has several
            training sets; empty where the number is not known.
        test: Number of test samples; None where it is not known.
        first_class: Name of the first class, where another data set has the same layout.
        tolerance: Relative difference allowed in the number of training samples, where the paper rounds it.
    """

    name: str
    title: str
    layout: str
    classes: int
    train: tuple[int, ...]
    test: int | None
    first_class: str = ""
    tolerance: float = 0.0

    @property
    def words(self) -> str:
        """Its name with its sizes: ``"CIFAR-10 (10 classes, samples: 50,000 train, 10,000 test)"``."""
        sizes = {"train": " or ".join(map(count, self.train)), "test": "" if self.test is None else count(self.test)}
        return f"{self.title} ({size_words(self.classes, sizes)})"

    def has_classes(self, classes: Sequence[str]) -> bool:
        """Whether these can be the names of its classes."""
        return len(classes) == self.classes and (not self.first_class or classes[0] == self.first_class)

    def has_sizes(self, samples: Mapping[str, int], *, val_of: str, redrawn: bool) -> bool:
        """Whether the sets of a run are all of its samples.

        Args:
            samples: The number of samples of each set of a run.
            val_of: The set that the validation samples are taken from, ``"train"`` or ``"test"``.
            redrawn: Whether training and test data were merged and drawn anew.
        """
        parts = {name: samples.get(name, 0) + samples.get("val", 0) * (name == val_of) for name in ("train", "test")}
        if "train" not in samples:  # a run of before its numbers were recorded
            return self.test is None or redrawn or parts["test"] == self.test
        if redrawn and self.test is not None:
            return any(sum(parts.values()) == number + self.test for number in self.train)
        is_test = self.test in (None, parts["test"])
        return is_test and (
            not self.train or any(abs(parts["train"] - number) <= self.tolerance * number for number in self.train)
        )


def size_words(classes: int, samples: Mapping[str, str]) -> str:
    """The number of classes, and of the samples of each set where it is known."""
    sizes = ", ".join(f"{number} {name}" for name, number in samples.items() if number)
    return f"{count(classes)} classes" + (f", samples: {sizes}" if sizes else "")


_IMAGENET = PublishedData("imagenet", "ImageNet", "imagenet", 1000, (1_281_167,), 50_000)
_FASHION = PublishedData("fashion-mnist", "Fashion-MNIST", "mnist", 10, (60_000,), 10_000, "T-shirt/top")

#: By layout.
PUBLISHED = {
    data.layout: data
    for data in (
        PublishedData("mnist", "MNIST", "mnist", 10, (60_000,), 10_000, "0"),
        PublishedData("cifar-10", "CIFAR-10", "cifar-10", 10, (50_000,), 10_000),
        PublishedData("cifar-100", "CIFAR-100", "cifar-100", 100, (50_000,), 10_000),
        PublishedData("tiny-imagenet", "Tiny-ImageNet", "tiny-imagenet", 200, (100_000,), 10_000),
        _IMAGENET,
        PublishedData("cub", "CUB-200-2011", "cub", 200, (5_994,), 5_794),
        # The older collection of 19,997 messages, a fifth of which is the test set (MbLS).
        PublishedData("newsgroups", "20 Newsgroups", "newsgroups", 20, (15_998,), 3_999),
        # With the annotations of SBD there are 10,582 training images (ACLS).
        PublishedData("voc-segmentation", "PASCAL VOC 2012", "voc-segmentation", 21, (1_464, 10_582), 1_449),
        PublishedData("cityscapes", "Cityscapes", "cityscapes", 19, (2_975,), 500),
        # ALS prints 480 classes and 2.2M samples, and not which.
        PublishedData("open-images", "Open Images", "open-images", 480, (2_200_000,), None, tolerance=0.05),
        PublishedData("coco", "COCO", "coco", 80, (118_287,), 5_000),
    )
}
#: Of recipes whose layout has several data sets, or that train on a part that the paper does not count exactly.
_OF_RECIPES = {
    "lr_fashion_mnist_mlp": _FASHION,
    "als_imagenet": PublishedData("imagenet", "ImageNet", "imagenet", 1000, (), 50_000),
}


@lru_cache
def data_of(recipe: str) -> PublishedData | None:
    """The data set of a recipe of a paper; None for other recipes.

    Example:
        >>> data_of("lr_fashion_mnist_mlp").words
        'Fashion-MNIST (10 classes, samples: 60,000 train, 10,000 test)'
    """
    if recipe in _OF_RECIPES:
        return _OF_RECIPES[recipe]
    return PUBLISHED.get(str(plain_recipe(recipe)["data"]["layout"]))


def parse_folders(texts: Sequence[str], recipes: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The values of ``--data``: the one without a name, and folders by the names of data sets.

    Example:
        >>> parse_folders(["mnist=a", "fashion-mnist=b"], ["lr_mnist_mlp", "lr_fashion_mnist_mlp"])
        (None, {'mnist': 'a', 'fashion-mnist': 'b'})
    """
    names = list(dict.fromkeys(data.name for recipe in recipes if (data := data_of(recipe)) is not None))
    plain: list[str] = []
    named: dict[str, str] = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        if equals and name in names:
            if not folder:
                raise ValueError(f"--data {text} names no folder")
            if name in named:
                raise ValueError(f"--data names {name} twice: {named[name]} and {folder}")
            named[name] = folder
        elif equals and not Path(text).exists():
            known = listing(names) or "none"
            raise ValueError(
                f"--data {text}: {name!r} is not a data set of this item ({known}){did_you_mean(name, names)}"
            )
        else:
            plain.append(text)
    if len(plain) > 1:
        raise ValueError(f"--data takes one folder without a name, got {plain[0]} and {plain[1]}; write NAME=DIR")
    return (plain[0] if plain else None), named


def find_data(recipe: str, plain: str | None, named: Mapping[str, str]) -> str | None:
    """The folder of a recipe's data among those of ``--data``; None if none was given for it.

    Raises:
        ValueError: its layout has several data sets, and the folder holds another one, or does not say which it holds.
    """
    data = data_of(recipe)
    folder = plain if data is None else named.get(data.name, plain)
    if folder is None or data is None or not data.first_class:
        return folder
    from calibrant.data import find_mnist  # here, because it imports PyTorch

    homes = find_mnist(folder)
    fitting = [home for home, name in homes.items() if name == data.name]
    unknown = [home for home, name in homes.items() if not name]
    if len(fitting) == 1:
        return str(fitting[0])
    if fitting:
        raise ValueError(
            f"{folder}: {data.title} is in {len(fitting)} folders here; name one of them with --data {data.name}=DIR"
        )
    rivals = [
        name for name, other in named.items() if name != data.name and Path(other).resolve() == Path(folder).resolve()
    ]
    if unknown and rivals:
        raise ValueError(f"{folder}: one folder of files cannot be both {data.name} and {rivals[0]}")
    if unknown and data.name in named and len(unknown) == 1:
        return str(unknown[0])
    if unknown:
        raise ValueError(
            f"{unknown[0]}: neither the labels nor the path say which data set this is; give --data {data.name}=DIR"
        )
    others = listing(sorted(set(homes.values()))) if homes else f"no files of the layout {data.layout}"
    raise ValueError(f"{folder}: expected {data.title}, found {others}; give --data {data.name}=DIR")
