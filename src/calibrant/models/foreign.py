"""Models and weights from outside: factories named ``package.module:factory``, and weights of files or of torchvision.

The networks of `names`, and timm's by their plain names, were installed on purpose. A ``package.module:factory`` can be
any code, and some options make timm read arbitrary files and addresses. Both are fine in the user's own program, and
need the user's consent if a recipe or a run folder names them.

A file of weights is ``.safetensors``, or a state dict saved by ``torch.save``, perhaps under "state_dict",
"model_state_dict" or "model" of a checkpoint; it is read with ``weights_only=True``, so that nothing in it is executed.
The ``model.safetensors`` of a finished run is such a file too. It must have every weight of the model. Batch counts of
batch norm (``num_batches_tracked``) are not weights, and may be missing or superfluous: old files and frozen batch norm
do not have them.

The head is the last linear layer or convolution of a model: the one that computes the logits. With ``head="drop"`` its
weights are left as they were initialised, whatever the file has for them.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.base import torchvision_operators
from calibrant.base.checks import check_choice, listing

TIMM, TORCHVISION = "timm/", "torchvision:"
HEADS = ("keep", "drop")
#: Exit code after SIGTERM, which the command line turns into a SystemExit.
TERMINATED = 143

# Any other name makes timm read a folder or download: hf-hub:, local-dir:.
_TIMM_NAME = re.compile(r"[A-Za-z0-9_]*(\.[A-Za-z0-9_]+)?")
_TIMM_PATHS = ("model_name", "checkpoint_path", "cache_dir")
_COUNTER = "num_batches_tracked"
_FORCED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch.load obeys it wherever it is called

#: Other frameworks by their package: what they are called, and what writes their models as ONNX.
_TO_ONNX = {
    "sklearn": ("scikit-learn", "skl2onnx"),
    "xgboost": ("XGBoost", "onnxmltools"),
    "lightgbm": ("LightGBM", "onnxmltools"),
    "catboost": ("CatBoost", "its save_model(format='onnx')"),
    "keras": ("Keras", "its export(format='onnx')"),
    "tensorflow": ("TensorFlow", "tf2onnx"),
    "flax": ("Flax", "jax2onnx"),
}


class UntrustedCodeError(ValueError):
    """A recipe or a run folder names code that the user has not agreed to run."""


def foreign_code(name: str, options: Mapping[str, Any] | None = None) -> str | None:
    """The code or files outside Calibrant, torchvision and timm that `build` would use, as the predicate of a sentence.

    None if there are none. Nothing is imported to find out.

    Example:
        >>> from calibrant.models import foreign_code
        >>> foreign_code("resnet18") is None
        True
        >>> print(foreign_code("no_such_package.nets:make"))
        imports the module no_such_package.nets (which is not installed here) and calls its make
    """
    if name.startswith(TIMM):
        if not _TIMM_NAME.fullmatch(name.removeprefix(TIMM)):
            return f"makes timm fetch a model from {name.removeprefix(TIMM)!r}"
        paths = [option for option in options or {} if option in _TIMM_PATHS or option.startswith("pretrained_")]
        return f"makes timm read what its option {paths[0]!r} names" if paths else None
    module, _, function = name.partition(":")
    if not module or not function:  # a name of the registry, or one that imports nothing
        return None
    return f"imports the module {module} ({_origin(module)}) and calls its {function}"


def require_trust(name: str, options: Mapping[str, Any], trust_code: bool) -> None:
    """Raise if building this model runs foreign code that is not trusted."""
    code = None if trust_code else foreign_code(name, options)
    if code is not None:
        raise UntrustedCodeError(
            f"model {name!r} is not from Calibrant, torchvision or timm: building it {code}; if you trust that "
            "code, allow it with --trust-code (in Python: trust_code=True)"
        )


def _origin(module: str) -> str:
    """Where a module would be imported from, by its top package: looking further would import it."""
    top = module.partition(".")[0]
    spec: ModuleSpec | None = getattr(sys.modules.get(top), "__spec__", None)
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = spec or PathFinder.find_spec(top, [os.getcwd(), *sys.path]) or importlib.util.find_spec(top)
    if spec is None:
        return "which is not installed here"
    folders = list(spec.submodule_search_locations or ())
    return f"from {folders[0] if folders else spec.origin or 'Python itself'}"


def find_factory(name: str) -> Any:
    """The object that ``package.module:name`` names; modules in the current folder can be named too."""
    module, _, path = name.partition(":")
    if not module or not path:
        hint = {".onnx": "; an ONNX file is given with --onnx", ".py": f" (a function in {name} is {name[:-3]}:NAME)"}
        hint |= dict.fromkeys((".pt", ".pth", ".safetensors"), "; a file of weights is given with --weights")
        advice = next((words for suffix, words in hint.items() if name.endswith(suffix)), "")
        raise ValueError(f"a model is named as package.module:factory, got {name!r}{advice}")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        with _errors_as_sentences(f"model {name!r}: cannot import {module}"):
            torchvision_operators.ensure()  # the factory may be torchvision's, or import it
            value: Any = importlib.import_module(module)
    finally:
        with contextlib.suppress(ValueError):  # the imported module may have changed the path
            sys.path.remove(here)
    with _errors_as_sentences(f"model {name!r}: {module} has no {path!r}"):
        for part in path.split("."):
            value = getattr(value, part)
    return value


def call_factory(name: str, factory: Any, options: Mapping[str, Any]) -> nn.Module:
    """The model that a factory returns for these keywords; ``name`` names it in messages."""
    if not callable(factory):
        kind = type(factory).__name__
        hint = other_framework(factory)
        raise ValueError(f"model {name!r}: a function or class that gives a module is needed, got {kind}{hint}")
    with _errors_as_sentences(f"model {name!r}: the call failed"):
        model = factory(**options)
    if not isinstance(model, nn.Module):
        hint = other_framework(model)
        raise ValueError(f"model {name!r}: it must give a torch.nn.Module, got {type(model).__name__}{hint}")
    return model


def other_framework(model: Any) -> str:
    """How to convert a model of another framework to ONNX; empty if the framework is unknown."""
    package = type(model).__module__.partition(".")[0]
    if package not in _TO_ONNX:
        return ""
    framework, converter = _TO_ONNX[package]
    return f": a model of {framework} is written as ONNX by {converter} first, and that file is taken (--onnx)"


@contextlib.contextmanager
def _errors_as_sentences(beginning: str) -> Iterator[None]:
    """Turn any error of other people's code into a ValueError that begins with ``beginning``.

    A SystemExit too: code that ends the process, even with "success", has not returned a model.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code == TERMINATED:
            raise
        unknown = isinstance(error, TypeError) and re.search(r"unexpected keyword argument '(\w+)'", str(error))
        reason = f"it has no option {unknown[1]!r}" if unknown else one_line(error)
        raise ValueError(f"{beginning} ({f'{type(error).__name__}: {reason}'.removesuffix(': ')})") from None


def one_line(error: BaseException, most: int = 400) -> str:
    """Another library's message, for use in a sentence."""
    words = " ".join(str(error).split())
    return words if len(words) <= most else f"{words[:most]}..."


def load_weights(model: nn.Module, weights: str | Path, *, head: str = "keep", torchvision: str | None = None) -> None:
    """Fill a model with the weights of a file, or with ``torchvision:NAME``, which torchvision downloads, in place.

    ``head`` says whether the classifier's weights are taken too; ``torchvision`` is the model's name in torchvision.
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
    """Raise unless the state dict of a file, ``source``, has the names and shapes of the model's, ``expected``.

    ``heads`` are the prefixes of the head's names, if the caller can leave it out: the message then says so.
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
    if name is None:
        raise ValueError(f"weights {weights!r} are for networks of torchvision as they are, which this one is not")
    torchvision_operators.ensure()
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
