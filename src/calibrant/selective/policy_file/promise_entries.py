"""A promise and the thresholds of classes in a policy's file: what each entry must be, and that they agree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from calibrant.predictions import class_name
from calibrant.selective.policy.request import LARGEST_COST, MOST_COSTED, check_costs
from calibrant.selective.policy_file.entry_types import MOST_CLASSES, Count, Entries, Flag, OpenShare, Text, must_be
from calibrant.selective.promise import KINDS, LossTally, Promise
from calibrant.selective.scores import CLASS_PROBABILITY, EXPECTED_COST
from calibrant.selective.thresholds.risk import ClassThreshold

if TYPE_CHECKING:
    from calibrant.selective.policy.rule import Rule

Kind = Annotated[Literal["risk", "precision", "recall", "cost", "expected-risk"], must_be(f"one of {', '.join(KINDS)}")]
ClassNumber = Annotated[int, Field(ge=0, lt=MOST_CLASSES), must_be("the number of a class")]
Cost = Annotated[float, Field(ge=0, le=LARGEST_COST), must_be(f"a number from 0 to {LARGEST_COST:g}")]
Loss = Annotated[float, Field(ge=0, le=2.0**62), must_be("a number from 0 on")]
CostRow = Annotated[list[Cost], Field(min_length=2, max_length=MOST_COSTED), must_be("a list of numbers from 0 on")]


class _Share(Entries):
    label: ClassNumber = Field(alias="class")
    name: Any = None
    share: OpenShare


class _Seen(Entries):
    rows: Count
    loss: Loss


class PromiseEntries(Entries):
    """The entries of a promise, each checked on its own."""

    of: Kind
    by_class: Flag = False
    shares: list[_Share] = Field(default_factory=list)
    target: Loss | None = None
    costs: list[CostRow] | None = None
    abstain_cost: Cost | None = None
    seen: _Seen | None = None

    def restore(self) -> Promise:
        """The promise of a policy."""
        return Promise(
            of=self.of,
            by_class=self.by_class,
            shares=tuple((share.label, share.share) for share in self.shares),
            target=self.target,
            costs=None if self.costs is None else tuple(map(tuple, self.costs)),
            abstain_cost=self.abstain_cost,
            tally=None if self.seen is None else LossTally(self.seen.rows, self.seen.loss),
        )


class ClassEntry(Entries):
    """To which class and group a threshold belongs; the threshold itself has its own entries."""

    label: ClassNumber = Field(alias="class")
    name: Any = None
    group: Text | None = None


def promise_dict(promise: Promise, class_names: tuple[str, ...] | None) -> dict[str, Any]:
    """A promise as plain data, without what it does not have."""
    entries: dict[str, Any] = {"of": promise.of}
    if promise.by_class:
        entries["by_class"] = True
    if promise.shares:
        entries["shares"] = [
            {"class": label, "name": class_name(label, class_names), "share": share} for label, share in promise.shares
        ]
    for name in ("target", "abstain_cost"):
        if getattr(promise, name) is not None:
            entries[name] = getattr(promise, name)
    if promise.costs is not None:
        entries["costs"] = [list(row) for row in promise.costs]
    if promise.tally is not None:
        entries["seen"] = promise.tally._asdict()
    return entries


def class_dict(part: ClassThreshold, class_names: tuple[str, ...] | None) -> dict[str, Any]:
    """To which class and group a threshold belongs, as plain data."""
    return {"class": part.label, "name": class_name(part.label, class_names), "group": part.group}


def check_promise(rule: Rule) -> None:
    """Raise a ValueError where a promise contradicts itself, or the rest of the policy."""
    promise = rule.promise
    _check_entries(promise, rule.num_classes)
    if not promise.is_plain and rule.kind == "segmentation":
        raise ValueError("promise: this one is for classification, but the policy is for segmentation")
    required = None if promise.score is None else promise.score.name
    if (rule.score.name in (CLASS_PROBABILITY, EXPECTED_COST) or required is not None) and rule.score.name != required:
        raise ValueError(f"score.name must be {required or 'one of a promise of risk'}, got {rule.score.name}")
    if (rule.target_risk is not None) and promise.of != "risk":
        raise ValueError(f"target_risk must be null with a promise of {promise.of}, got {rule.target_risk}")
    if rule.target_risk is None and promise.by_class:
        raise ValueError("target_risk must be a number where classes have thresholds of their own")
    if promise.has_class_thresholds != (rule.classes is not None):
        raise ValueError("class_thresholds go with a promise by class or of precision: one is there without the other")
    if rule.groups is not None and not promise.is_plain:
        raise ValueError("groups have thresholds of their own, and the promise is of something else")
    if rule.classes is not None:
        _check_classes(rule, rule.classes)


def _check_entries(promise: Promise, classes: int) -> None:
    needs = {"precision": "shares", "recall": "shares", "cost": "costs", "expected-risk": "target"}
    for name in ("shares", "costs"):
        if bool(getattr(promise, name)) != (needs.get(promise.of) == name):
            raise ValueError(f"promise.{name} does not go with a promise of {promise.of}, or is missing")
    if promise.by_class and promise.of != "risk":
        raise ValueError(f"promise.by_class is for a risk, got {promise.of}")
    if (promise.target is not None) != (promise.of in ("cost", "expected-risk")):
        raise ValueError(f"promise.target does not go with a promise of {promise.of}, or is missing")
    if promise.abstain_cost is not None and promise.of != "cost":
        raise ValueError(f"promise.abstain_cost is for a cost, got {promise.of}")
    labels = [label for label, _ in promise.shares]
    if len(set(labels)) < len(labels) or max(labels, default=0) >= classes:
        raise ValueError(f"promise.shares must be of different classes below {classes}")
    if promise.of == "recall" and len(labels) != 1:
        raise ValueError(f"promise.shares must be one of recall, got {len(labels)}")
    if promise.of == "cost":
        check_costs(promise.costs, classes)
    if promise.mean_loss is not None and not 0 < promise.mean_loss < 1:
        raise ValueError(f"promise.target must lie between 0 and the highest loss, got {promise.target}")
    tally = promise.tally
    if (tally is not None) != (promise.of in ("recall", "cost", "expected-risk")):
        raise ValueError(f"promise.seen does not go with a promise of {promise.of}, or is missing")
    if tally is not None and tally.loss > tally.rows * (1 + 1e-9):
        raise ValueError(f"promise.seen.loss must be at most its rows, got {tally.loss:g} of {tally.rows}")


def _check_classes(rule: Rule, classes: tuple[ClassThreshold, ...]) -> None:
    promise = rule.promise
    if not classes:
        raise ValueError("class_thresholds must not be empty")
    (key, number), *_ = Counter((part.label, part.group) for part in classes).most_common(1)
    if number > 1:
        raise ValueError(f"class_thresholds have class {key[0]} {number} times")
    for part in classes:
        if part.label >= rule.num_classes:
            raise ValueError(f"class_thresholds have a class {part.label}, of {rule.num_classes}")
        if (part.group is None) != (rule.group is None):
            raise ValueError("class_thresholds have groups where the policy has a group column, and only there")
        if promise.of == "precision" and promise.risk_of(part.label) is None:
            raise ValueError(f"class_thresholds have class {part.label}, whose precision is not promised")
    if len(rule.parts) < len(classes):
        raise ValueError("class_thresholds must have names that differ: a group and a class are called alike")
    if promise.of == "precision":
        missing = {label for label, _ in promise.shares} - {part.label for part in classes}
        if missing:
            raise ValueError(f"class_thresholds lack class {min(missing)}, whose precision is promised")


def check_tally(rule: Rule) -> None:
    """Raise unless the counts bear out the promise, as far as they can tell."""
    promise = rule.promise
    if promise.tally is None or promise.mean_loss is None or rule.abstains:
        return
    # A bet on costs may have been won before the last samples came, whose costs are above the target.
    is_counted = promise.of != "cost" and promise.tally.rows > 0 and rule.confidence >= 0.5
    if is_counted and promise.tally.mean > promise.mean_loss + 1e-9:
        mean = f"{promise.tally.mean:.4g}"
        raise ValueError(f"promise.seen must have a mean loss of at most {promise.mean_loss:.4g}, got {mean}")
    if promise.abstain_cost is not None and rule.threshold.value < -promise.abstain_cost - 1e-9:
        raise ValueError("threshold.accept_from must not lie below the abstain cost")
