"""Weights of a model from a file or from torchvision: nothing in a file is executed, and mismatches are reported.

A file is ``.safetensors``, or a state dict saved by ``torch.save``, perhaps under "state_dict", "model_state_dict" or
"model" of a checkpoint; it is read with ``weights_only=True``. The ``model.safetensors`` of a finished run is such a
file too. It must have every weight of the model. Batch counts of batch norm (``num_batches_tracked``) are not weights,
and may be missing or superfluous: old files and frozen batch norm do not have them.

The head is the last linear layer or convolution of a model: the one that computes the logits. With ``head="drop"`` its
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
from calibrant._validation import check_choice, listing
from calibrant.models.factories import one_line

TORCHVISION = "torchvision:"
HEADS = ("keep", "drop")

_COUNTER = "num_batches_tracked"
_FORCED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch.load obeys it wherever it is called


def load(model: nn.Module, weights: str | Path, *, head: str = "keep", torchvision: str | None = None) -> None:
    """Fill a model with weights, in place.

    Args:
        model: the model.
        weights: a file, or ``torchvision:NAME``, which torchvision downloads.
        head: "keep" or "drop": whether the classifier's weights are taken too.
        torchvision: the model's name in torchvision, if it has weights for it.
    """
    check_choice("head", head, HEADS)
    if not isinstance(weights, str | Path):
        raise ValueError(f"weights are named by a file or as {TORCHVISION}NAME, got {type(weights).__name__}")
    is_download = isinstance(weights, str) and weights.startswith(TORCHVISION)
    state = _state_of_torchvision(torchvision, str(weights)) if is_download else read_state(Path(weights))

    expected = {key: value for key, value in model.state_dict().items() if not key.endswith(_COUNTER)}
    state = strip_wrapper({key: value for key, value in state.items() if not key.endswith(_COUNTER)}, expected)
    heads = tuple(f"{name}." for name in head_of(model))
    if head == "drop":
        expected, state = ({k: v for k, v in d.items() if not k.startswith(heads)} for d in (expected, state))
    check_state_fits(expected, state, str(weights), heads=heads)
    for key, value in state.items():
        if value.is_floating_point() != expected[key].is_floating_point():
            raise ValueError(f"{weights}: {key} holds {value.dtype}, the model's holds {expected[key].dtype}")
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise ValueError(f"{weights}: {key} holds values that are not finite")
    # Not strict: the counters, and a head that is left out, stay as they are; everything else was compared above.
    model.load_state_dict(state, strict=False)


def strip_wrapper(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A file's state dict by the names that are expected.

    DataParallel saves them all under "module.", and the folder of a run of Calibrant under "model/".
    """
    for prefix in ("module.", "model/"):
        if state and all(k.startswith(prefix) for k in state) and not any(k.startswith(prefix) for k in expected):
            return {key.removeprefix(prefix): value for key, value in state.items()}
    return dict(state)


def check_state_fits(
    expected: Mapping[str, Tensor], state: Mapping[str, Tensor], source: str, *, heads: tuple[str, ...] = ()
) -> None:
    """Raise unless a file's state dict has the names and shapes of a model's.

    Args:
        expected: the model's state dict.
        state: the file's.
        source: names the file in messages.
        heads: prefixes of the head's names, if the caller can leave it out: the message then says so.
    """
    absent, unexpected = sorted(set(expected) - set(state)), sorted(set(state) - set(expected))
    problems = [f"lacks {listing(absent, 3)}"] if absent else []
    problems += [f"has {listing(unexpected, 3)}, which the model does not have"] if unexpected else []
    if problems:
        raise ValueError(f"{source}: {', and '.join(problems)}")
    shapes = {key: (list(state[key].shape), list(value.shape)) for key, value in expected.items()}
    mismatched = [key for key, (stored, needed) in shapes.items() if stored != needed]
    if mismatched and not all(key.startswith(heads) for key in mismatched):
        stored, needed = shapes[mismatched[0]]
        example = f"{mismatched[0]} is {stored}, the model's {needed}"
        raise ValueError(f"{source}: {len(mismatched)} weights have other shapes than the model's: {example}")
    if mismatched:
        stored, needed = shapes[mismatched[-1]]
        if stored[:1] == needed[:1] or not stored:
            raise ValueError(
                f"{source}: the head's {mismatched[-1]} is {stored}, the model's {needed}; head='drop' leaves it out"
            )
        raise ValueError(
            f"{source}: its head has {stored[0]} classes and the model {needed[0]}: "
            f"ask for num_classes={stored[0]}, or leave its head out with head='drop'"
        )


def head_of(model: nn.Module) -> tuple[str, ...]:
    """Names of the layers that compute the logits: the last linear layer or convolution; in detection there are two."""
    modules = dict(model.named_modules())
    if "roi_heads.box_predictor" in modules:
        return ("roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred")
    layers = [name for name, part in modules.items() if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d)]
    return tuple(layers[-1:])


def read_state(path: Path) -> dict[str, Tensor]:
    """The state dict of a file."""
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
        raise ValueError(f"{path}: not a file of weights ({one_line(error, 150) or type(error).__name__})") from None
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(name), Mapping):
            state = state[name]
    has_tensors = isinstance(state, Mapping) and all(isinstance(value, Tensor) for value in state.values())
    if not has_tensors or not all(isinstance(key, str) for key in state):
        raise ValueError(f"{path}: not a state dict, which maps names to tensors")
    return dict(state)


def _refuse_compressed(path: Path) -> None:
    """Refuse a compressed archive, which ``torch.save`` does not write: a small one could fill the memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError):  # no archive, or a broken one, of which the reader says what is wrong
        return
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError(f"{path}: not a file of weights: torch.save writes no compressed archives")


def _state_of_torchvision(name: str | None, weights: str) -> dict[str, Tensor]:
    """The state dict of torchvision's own model with these weights."""
    if name is None:
        raise ValueError(f"weights {weights!r} are for networks of torchvision as they are, which this one is not")
    _torchvision.ensure()
    from torchvision import models

    own_name, available = weights.removeprefix(TORCHVISION), {w.name: w for w in models.get_model_weights(name)}
    if own_name not in available:
        raise ValueError(f"torchvision has no weights {own_name!r} for {name}: expected one of {', '.join(available)}")
    try:
        with refuse_pickles(), contextlib.redirect_stdout(sys.stderr):  # torch.hub prints what it downloads
            # Through the model, as torchvision renames the weights of its oldest files.
            state: dict[str, Tensor] = models.get_model(name, weights=available[own_name]).state_dict()
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise ValueError(f"torchvision's weights {own_name!r} could not be loaded ({one_line(error)})") from None
    return {key: value for key, value in state.items() if not key.startswith("aux_classifier.")}


@contextlib.contextmanager
def refuse_pickles() -> Iterator[None]:
    """Inside, other libraries refuse files of weights with anything but tensors and plain values."""
    before = os.environ.get(_FORCED)
    os.environ[_FORCED] = "1"
    try:
        yield
    finally:
        os.environ.pop(_FORCED) if before is None else os.environ.update({_FORCED: before})
