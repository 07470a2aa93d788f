"""Weights of a model from a file or from torchvision: nothing in a file is executed, and what does not fit is named.

A file is ``.safetensors``, or a state dict as ``torch.save`` writes it, which may lie under "state_dict",
"model_state_dict" or "model" of a checkpoint; it is read with ``weights_only=True``. Every weight of the model must
come from it. Counts of batches that batch norm keeps (``num_batches_tracked``) are no weights, and may be missing or
left over: old files and frozen batch norm do not have them.

The head is the last linear layer or convolution of a model: the one that gives the classes. With ``head="drop"`` its
weights are left as they were initialised, whatever the file has for them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import _torchvision
from calibrant._validation import choice
from calibrant.models.factories import one_line

TORCHVISION = "torchvision:"
HEADS = ("keep", "drop")

_COUNTER = "num_batches_tracked"
_FORCED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch.load obeys it wherever it is called


def load(model: nn.Module, weights: str | Path, *, head: str = "keep", torchvision: str | None = None) -> None:
    """Fill a model with weights.

    Args:
        model: filled in place.
        weights: a file, or ``torchvision:NAME``, which torchvision downloads.
        head: "keep" or "drop": whether the classifier's weights are taken too.
        torchvision: the model's name in torchvision, if it has weights for it.
    """
    choice("head", head, HEADS)
    if not isinstance(weights, str | Path):
        raise ValueError(f"weights are named by a file or as {TORCHVISION}NAME, got {type(weights).__name__}")
    if isinstance(weights, str) and weights.startswith(TORCHVISION):
        state = _of_torchvision(torchvision, weights)
    else:
        state = read_state(Path(weights))
    fill(model, state, str(weights), head=head)


def fill(model: nn.Module, state: Mapping[str, Tensor], where: str, *, head: str = "keep") -> None:
    """Copy a state dict into a model of the same names and shapes; ``where`` names it in messages."""
    ours = {key: value for key, value in model.state_dict().items() if not key.endswith(_COUNTER)}
    theirs = without_wrapper({key: value for key, value in state.items() if not key.endswith(_COUNTER)}, ours)
    heads = tuple(f"{name}." for name in head_of(model))
    if head == "drop":
        ours, theirs = ({k: v for k, v in one.items() if not k.startswith(heads)} for one in (ours, theirs))
    check_state_fits(ours, theirs, where, heads=heads)
    for key in ours:
        if theirs[key].is_floating_point() != ours[key].is_floating_point():
            raise ValueError(f"{where}: {key} holds {theirs[key].dtype}, the model's holds {ours[key].dtype}")
        if theirs[key].is_floating_point() and not torch.isfinite(theirs[key]).all():
            raise ValueError(f"{where}: {key} holds values that are not finite")
    # Not strict: the counters, and a head that is left out, stay as they are; everything else was compared above.
    model.load_state_dict(theirs, strict=False)


def without_wrapper(theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A file's state dict by the names that ours has: DataParallel saves them all under "module."."""
    prefix = "module."
    if theirs and all(key.startswith(prefix) for key in theirs) and not any(key.startswith(prefix) for key in ours):
        return {key.removeprefix(prefix): value for key, value in theirs.items()}
    return dict(theirs)


def check_state_fits(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    where: str,
    *,
    heads: tuple[str, ...] = (),
    left_over: str = "has {}, for which the model has no place",
    joint: str = ", and ",
) -> None:
    """Raise unless a file's state dict has the names and shapes of a model's.

    Args:
        ours: the model's.
        theirs: the file's.
        where: names the file in messages.
        heads: how the names of the head begin, if the caller can leave it out: the message then says so.
        left_over: says what only the file has.
        joint: goes between what the file lacks and what only it has.
    """
    missing, unexpected = (sorted(set(a) - set(b)) for a, b in ((ours, theirs), (theirs, ours)))
    wrong = [f"lacks {_some(missing)}"] if missing else []
    wrong += [left_over.format(_some(unexpected))] if unexpected else []
    if wrong:
        raise ValueError(f"{where}: {joint.join(wrong)}")
    shapes = [key for key in ours if ours[key].shape != theirs[key].shape]
    if shapes and all(key.startswith(heads) for key in shapes):
        raise ValueError(_other_classes(where, shapes[-1], theirs, ours))
    if shapes:
        key = shapes[0]
        both = f"{list(theirs[key].shape)}, the model's {list(ours[key].shape)}"
        raise ValueError(f"{where}: {len(shapes)} weights have other shapes than the model's: {key} is {both}")


def head_of(model: nn.Module) -> tuple[str, ...]:
    """Names of the layers that give the classes: the last linear layer or convolution; in detection there are two."""
    named = dict(model.named_modules())
    if "roi_heads.box_predictor" in named:
        return ("roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred")
    layers = [name for name, part in named.items() if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d)]
    return tuple(layers[-1:])


def read_state(path: Path) -> dict[str, Tensor]:
    """The state dict of a file, which may hold it under a name."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    _refuse_compressed(path)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        text = "not a state dict: it holds more than tensors, or is no such file; nothing in it was executed"
        raise ValueError(f"{path}: {text}") from None
    except Exception as error:  # safetensors and zip files have their own classes
        text = " ".join(str(error).split())[:150] or type(error).__name__
        raise ValueError(f"{path}: not a file of weights ({text})") from None
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(name), Mapping):
            state = state[name]
    tensors = isinstance(state, Mapping) and all(isinstance(value, Tensor) for value in state.values())
    if not tensors or not all(isinstance(key, str) for key in state):
        raise ValueError(f"{path}: not a state dict, which maps names to tensors")
    return dict(state)


def _of_torchvision(name: str | None, weights: str) -> dict[str, Tensor]:
    """The state dict of torchvision's own model with these weights."""
    wanted = weights.removeprefix(TORCHVISION)
    if name is None:
        raise ValueError(f"weights {weights!r} are for networks of torchvision as they are, which this one is not")
    _torchvision.ensure()
    from torchvision import models

    known = {one.name: one for one in models.get_model_weights(name)}
    if wanted not in known:
        raise ValueError(f"torchvision has no weights {wanted!r} for {name}: expected one of {', '.join(known)}")
    try:
        with nothing_unpickled(), contextlib.redirect_stdout(sys.stderr):  # where torch.hub tells what it downloads
            # Through the model rather than the file: torchvision renames what its oldest files call otherwise.
            state: dict[str, Tensor] = models.get_model(name, weights=known[wanted]).state_dict()
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise ValueError(f"torchvision's weights {wanted!r} could not be loaded ({one_line(error)})") from None
    return {key: value for key, value in state.items() if not key.startswith("aux_classifier.")}


@contextlib.contextmanager
def nothing_unpickled() -> Iterator[None]:
    """Inside, files of weights that other libraries load hold tensors and plain values, or are refused."""
    before = os.environ.get(_FORCED)
    os.environ[_FORCED] = "1"
    try:
        yield
    finally:
        os.environ.pop(_FORCED) if before is None else os.environ.update({_FORCED: before})


def _refuse_compressed(path: Path) -> None:
    """A file of ``torch.save`` is an archive without compression; with it, a small file may fill the memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError):  # no archive, or a broken one: whoever reads it says what is wrong
        return
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError(f"{path}: not a file of weights: torch.save writes no compressed archives")


def _other_classes(where: str, key: str, theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> str:
    """The message for weights that fit but for the head."""
    old, new = theirs[key].shape, ours[key].shape
    if old[:1] == new[:1] or not old:
        return f"{where}: the head's {key} is {list(old)}, the model's {list(new)}; head='drop' leaves it out"
    return (
        f"{where}: its head has {old[0]} classes and the model {new[0]}: "
        f"ask for num_classes={old[0]}, or leave its head out with head='drop'"
    )


def _some(keys: list[str], most: int = 3) -> str:
    rest = f" and {len(keys) - most} more" if len(keys) > most else ""
    return ", ".join(keys[:most]) + rest
