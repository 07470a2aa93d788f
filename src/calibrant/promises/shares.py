"""Shares that are promised of classes: the classes as people name them, and as a data set numbers them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from calibrant.base.checks import did_you_mean, listing, shorten
from calibrant.base.entries import ENTRIES, MOST_CLASSES, Count, OpenShare, excerpt, refusal, without
from calibrant.base.numbers import allowed
from calibrant.predictions import Predictions, class_name


def _class_label(value: Any) -> int | str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_CLASSES
    if not is_number and not isinstance(value, str):
        raise refusal(f"must be the number of a class, or its name, got {excerpt(value)}")
    return value


@dataclass(frozen=True)
class ClassShare:
    """The share that is promised of a class, at least; and how many samples of it set its threshold, where known."""

    __pydantic_config__ = ENTRIES

    label: Annotated[Annotated[int | str, PlainValidator(_class_label)], Field(alias="class")]
    share: OpenShare
    samples: Count | None = None

    @property
    def number(self) -> int:
        """The position of the class, which is known once the promise is bound to predictions."""
        if isinstance(self.label, str):
            raise ValueError(f"the class {shorten(self.label)!r} of a promise must be a number in a policy")
        return self.label

    @property
    def risk(self) -> float:
        """What the share leaves."""
        return round(1 - self.share, 12)

    @property
    def least(self) -> str:
        """The share in words."""
        return f"at least {allowed(self.share)}"

    def bind(self, predictions: Predictions) -> ClassShare:
        """The same of the class's position in predictions."""
        return replace(self, label=class_position(self.label, predictions))

    def words(self, scope: str, class_names: Sequence[str] | None) -> str:
        """So much of what concerns the class."""
        return f"{allowed(self.share)} {scope} {class_name(self.number, class_names)}"

    def to_entries(self, class_names: Sequence[str] | None) -> dict[str, Any]:
        """For a file, with the name of the class for readers."""
        entries = {"class": self.number, "name": class_name(self.number, class_names), "share": self.share}
        return entries if self.samples is None else {**entries, "samples": self.samples}


ClassShares = Annotated[tuple[ClassShare, ...], without("name")]


def class_position(label: int | str, predictions: Predictions) -> int:
    """The position of a class in predictions, by its name or its number."""
    names = list(predictions.class_names or map(str, range(int(predictions.num_classes))))
    if isinstance(label, int):
        if str(label) in names and names.index(str(label)) != label:
            raise ValueError(f"class {label} is a name and another's position: give the name as text")
        if label >= len(names):
            raise ValueError(f"no class {label}; there are {len(names)}")
        return label
    if label not in names:
        hint = did_you_mean(label, names) or f"; there are {listing(names)}"
        raise ValueError(f"no class {shorten(label)!r}{hint}")
    return names.index(label)


def check_shares(shares: Sequence[ClassShare], num_classes: int) -> None:
    """Raise unless these are of different classes of that many."""
    labels = [share.label for share in shares]
    if any(isinstance(label, str) or label >= num_classes for label in labels) or len(set(labels)) < len(labels):
        raise ValueError(f"promise.shares must be of different classes below {num_classes}")
