"""Recipes: everything that a training run depends on, in one TOML file, checked before anything starts.

The error for an unknown key, a wrong type or a value out of range names the key, and the nearest known one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from calibrant.base.checks import did_you_mean, short
from calibrant.base.files import DEEPEST, check_depth, parse_toml, read_json, read_regular
from calibrant.losses import Loss, describe
from calibrant.recipes import find
from calibrant.training.components import BLANKING, MIXING, Named, make_loss
from calibrant.training.optimisers import OptimiserSettings, Schedule
from calibrant.training.records import first_error, name_of, sentence_of
from calibrant.training.settings import (
    TUNED_FOR,
    DataSettings,
    DetectionSettings,
    Expected,
    MethodSettings,
    ModelSettings,
    Resources,
    Seed,
    Settings,
    TableSettings,
    TargetSettings,
    TrainingSettings,
)

#: Parts of a recipe that no run depends on.
_WORDS = {"title", "paper", "table", "notes", "methods", "tables", "expected", "search", "resources"}

#: Largest sizes in bytes of a recipe file, and of the complete recipe in a run folder.
LARGEST_FILE, LARGEST_COPY = 2**20, 2**23

#: Larger whole numbers do not fit into the file formats.
_LARGEST_WHOLE = 2**63 - 1


#: The values to try, by setting.
SearchSettings = Annotated[
    dict[str, Annotated[tuple[Any, ...], Field(min_length=1, max_length=1000)]], Field(max_length=100)
]


class Recipe(Settings):
    """One experiment.

    With ``detection`` the model is the backbone of a detector (`calibrant.detection`), which has its own losses.
    ``methods`` are the rows of the paper's tables, ``tables`` the rows and columns of each table, ``expected`` the
    printed numbers. ``search`` holds the values that a comparison tries, by method: ``{acls = {margin = [6, 10]}}``;
    ``resources`` are for comparisons too. None of these changes a run.

    Example:
        >>> recipe = Recipe.model_validate(
        ...     {"data": {"layout": "digits"}, "model": {"name": "mlp"}, "loss": {"name": "ce"}}
        ... )
        >>> recipe.optimiser.name, len(recipe.key)
        ('sgd', 16)
    """

    title: str = ""
    paper: str = ""
    table: str = ""
    notes: str = ""
    seed: Seed = 0
    data: DataSettings
    model: ModelSettings
    detection: DetectionSettings | None = None
    loss: Named = Named(name="ce")
    targets: TargetSettings = TargetSettings()
    mixing: Named | None = None
    optimiser: OptimiserSettings = OptimiserSettings()
    schedule: Schedule = Schedule()
    training: TrainingSettings = TrainingSettings()
    methods: dict[str, MethodSettings] = Field(default_factory=dict, max_length=100)
    tables: dict[str, TableSettings] = Field(default_factory=dict, max_length=100)
    expected: tuple[Expected, ...] = ()
    search: dict[str, SearchSettings] = Field(default_factory=dict, max_length=100)
    resources: Resources = Resources()

    @model_validator(mode="before")
    @classmethod
    def _check_plain_values(cls, values: Any) -> Any:
        if isinstance(values, dict):
            check_depth(values, "a recipe")
            _check_values(values, "")
        return values

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        self.build_loss()
        self.build_mixing()
        self._check_detection()
        for name, method in self.methods.items():
            if method.of is not None and (method.of not in self.methods or self.methods[method.of].of is not None):
                raise ValueError(f"method {name!r} repairs {method.of!r}, which is not a method with runs of its own")
        for number, table in self.tables.items():
            unknown = [row for row in table.rows if row.partition(TUNED_FOR)[0] not in self.methods]
            if unknown:
                hint = did_you_mean(unknown[0], self.methods)
                raise ValueError(f"table {number!r} has a row {unknown[0]!r} that is not a method of the recipe{hint}")
        return self

    def _check_detection(self) -> None:
        is_set = {
            "loss": self.loss != Named(name="ce"), "targets": self.targets != TargetSettings(),
            "mixing": self.mixing is not None, "data.blanking": self.data.blanking is not None,
            "data.context_rate": self.data.context_rate > 0, "data.variant": self.data.variant is not None,
            "data.text": self.data.text is not None, "training.compile": self.training.compile,
        }  # fmt: skip
        if self.detection is not None and any(is_set.values()):
            name = next(name for name, value in is_set.items() if value)
            raise ValueError(f"a recipe for detection cannot have {name}: a detector has its own losses and targets")

    def build_loss(self, ignore_index: int | None = None) -> Loss:
        """The loss of this recipe; ``ignore_index`` is the data set's, used if the recipe has none."""
        return make_loss(self.loss.name, self.loss.parameters, ignore_index)

    def build_mixing(self) -> Any:
        """The mixing of images, or None."""
        return None if self.mixing is None else self.mixing.build("mixing", MIXING)

    def build_blanking(self) -> Any:
        """The blanking of images, or None."""
        return None if self.data.blanking is None else self.data.blanking.build("blanking", BLANKING)

    @property
    def key(self) -> str:
        """A hash of everything that the result depends on, without paths and descriptions."""
        plain = self.model_dump(mode="json", exclude=_WORDS)
        plain["data"].pop("path")
        plain["data"].pop("pixels")
        # Recipes written before these settings existed keep their keys.
        for name, usual in (("exclude", None), ("interpolate", True), ("train_count", None), ("label_noise", None)):
            if plain["data"][name] == usual:
                plain["data"].pop(name)
        if self.detection is None:  # likewise
            plain.pop("detection")
        elif self.detection.weights:
            plain["model"].pop("weights")  # a path; the settings have a hash of the file
            plain["detection"].pop("backbone")
            plain["detection"].pop("pretraining")
        plain["data"]["mean"], plain["data"]["std"] = (list(v) for v in self.data.normalisation)
        plain["loss"] = _complete(self.loss)
        for also in plain["data"]["also"].values():
            if isinstance(also, dict):
                also.pop("path")
                if not also["pool"]:  # likewise
                    also.pop("pool")
        text = plain["data"]["text"] or {}
        for name, default in (("side", "first"), ("unknown", "token"), ("learn_vectors", False)):  # likewise
            if text.get(name) == default:
                text.pop(name)
        for name in ("workers", "checkpoint_seconds", "eval_batch_size", "tensorboard"):
            plain["training"].pop(name)
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _complete(loss: Named) -> dict[str, Any]:
    """A loss with its defaults; 10 and 10.0 become the same number."""
    defaults = describe(loss.name).defaults()
    parameters = {k: float(v) if isinstance(defaults.get(k), float) else v for k, v in loss.parameters.items()}
    return {"name": loss.name} | defaults | parameters


def load(recipe: str | Path, overrides: Iterable[str] = (), *, fresh_loss: bool = False) -> Recipe:
    """A recipe from a TOML file, or one that comes with Calibrant, with some of its values replaced.

    Args:
        recipe: A file, or the name of a recipe that comes with Calibrant: ``"small/scenes"``.
        overrides: Such as ``loss.margin=6``; values are TOML, or text; without a value, as in ``data.hold_out=``, the
            key is removed.
        fresh_loss: Drop the file's loss and its parameters: the overrides name another.
    """
    text = read_regular(find(recipe), LARGEST_FILE)
    try:
        plain = parse_toml(text, "a recipe")
    except ValueError as error:
        raise ValueError(f"{recipe}: {error}") from None
    if fresh_loss:
        plain.pop("loss", None)
    for override in overrides:
        _replace(plain, override)
    return check_recipe(plain, str(recipe))


def load_method(recipe: str | Path, name: str, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe of one of a recipe's methods: a row of its tables.

    Args:
        recipe: As in `load`.
        name: Name of the method; if it repairs another method, that one is trained.
        overrides: As in `load`; they apply before the method does.
    """
    plan = load(recipe, overrides)
    if name not in plan.methods:
        names = ", ".join(plan.methods) or "none"
        raise ValueError(f"{recipe}: no method {short(name)}; it has {names}{did_you_mean(name, plan.methods)}")
    name = plan.methods[name].of or name
    loss = {"name": "ce"} | {k: v for k, v in plan.loss.parameters.items() if k == "ignore_index"}
    changes = plan.methods[name].changes
    settings = {"targets.name": "hard", "mixing": None, "data.context_rate": 0.0} | changes
    return replace_settings(plan, settings | {"loss": loss | changes.get("loss", {})})


def replace_settings(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """A copy of a recipe with other values, given by dotted names."""
    plain: dict[str, Any] = recipe.model_dump(mode="json")
    for name, value in values.items():
        table, key = table_of(plain, name)
        table[key] = value
    return check_recipe(plain, "the recipe of a run")


def load_copy(path: Path) -> Recipe:
    """The complete recipe that a run folder keeps, as JSON."""
    return check_recipe(read_json(path, LARGEST_COPY, "the recipe of a run"), str(path))


def check_recipe(plain: dict[str, Any], source: str) -> Recipe:
    """Validate plain values as a recipe; the error is one sentence about the first problem."""
    try:
        return Recipe.model_validate(plain)
    except ValidationError as error:
        raise ValueError(f"{source}: {_sentence(error)}") from error


def differences(recipe: Recipe, other: Recipe) -> list[str]:
    """Names of the settings in which two recipes differ, as for ``--set``."""
    first, second = (dict(_flat(plan.model_dump(mode="json"))) for plan in (recipe, other))
    names = [name for name in first | second if first.get(name) != second.get(name)]
    paths = {"data.path"} | ({"model.weights", "detection.backbone"} if recipe.detection else set())
    return [name for name in names if name.partition(".")[0] not in _WORDS and name not in paths]


def _flat(plain: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in plain.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _check_values(value: Any, name: str) -> None:
    """Refuse values other than text, finite numbers, booleans, and lists or tables of them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_values(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_values(inner, name)
    elif isinstance(value, int) and abs(value) > _LARGEST_WHOLE:
        raise ValueError(f"{name} must be at most 2**63 - 1 in size, got {short(value)}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    elif not isinstance(value, str | int | float | BaseModel | None):
        raise ValueError(f"{name} must be text, a number, true or false, got a {type(value).__name__}")


def _replace(plain: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"a setting must be name=value, for example loss.margin=6, got {short(override)}")
    table, key = table_of(plain, name.strip())
    if text.strip():
        table[key] = _value(override, text.strip())
    else:
        table.pop(key, None)


def table_of(plain: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The table that a dotted name leads to, created if missing, and the last part of the name."""
    *parents, key = name.split(".")
    if len(parents) >= DEEPEST:
        raise ValueError(f"{short(name)}: a setting may be at most {DEEPEST} levels deep, got {len(parents) + 1}")
    table = plain
    for parent in parents:
        inner = table.get(parent)
        if inner is None:
            inner = table[parent] = {}
        if not isinstance(inner, dict):
            raise ValueError(f"{short(name)}: {parent!r} is a value, not a table")
        table = inner
    return table, key


def _value(override: str, text: str) -> Any:
    """The value of an override: TOML, or the text itself."""
    try:
        tables = parse_toml(f"value = {text}", "a value")
    except ValueError as error:
        if text[0] in "{[\"'" or "\n" in text:
            raise ValueError(f"{short(override)}: {error}") from None
        return text
    if list(tables) != ["value"]:
        raise ValueError(f"{short(override)}: expected one value, got several lines")
    return tables["value"]


def _sentence(error: ValidationError) -> str:
    details = first_error(error)
    name = name_of(details)
    if details["type"] == "extra_forbidden":
        parents, _, key = name.rpartition(".")
        fields = _fields(parents.split(".") if parents else [])
        hint = did_you_mean(key, fields)
        return f"unknown key {short(name)}; known here are {', '.join(sorted(fields))}{hint}"
    return sentence_of(details)


def _fields(path: list[str]) -> list[str]:
    """The keys of a section of a recipe."""
    model: Any = Recipe
    for part in path:
        if part.isdigit() or not hasattr(model, "model_fields"):
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        candidates = [annotation, *get_args(annotation), *(a for x in get_args(annotation) for a in get_args(x))]
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
    return list(model.model_fields) if hasattr(model, "model_fields") else []
