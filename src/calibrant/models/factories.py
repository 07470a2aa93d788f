"""Models given as ``package.module:factory``: whether their code is trusted, and importing and calling it.

The networks of `names`, and timm's by their plain names, were installed on purpose. A ``package.module:factory`` can be
any code, and some options make timm read arbitrary files and addresses. Both are fine in the
user's own program, and need the user's consent if a recipe or a run folder names them.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from torch import nn

from calibrant import _torchvision

TIMM = "timm/"
#: Exit code after SIGTERM, which the command line turns into a SystemExit.
TERMINATED = 143

# Any other name makes timm read a folder or download: hf-hub:, local-dir:.
_TIMM_NAME = re.compile(r"[A-Za-z0-9_]*(\.[A-Za-z0-9_]+)?")
_TIMM_PATHS = ("model_name", "checkpoint_path", "cache_dir")


class UntrustedCodeError(ValueError):
    """A recipe or a run folder names code that the user has not agreed to run."""


def foreign_code(name: str, options: Mapping[str, Any] | None = None) -> str | None:
    """The code or files outside Calibrant, torchvision and timm that building a model would use.

    Nothing is imported to find out.

    Args:
        name: as `build` takes it.
        options: as `build` takes them.

    Returns:
        The predicate of a sentence, or None if there is no such code.

    Example:
        >>> from calibrant.models.factories import foreign_code
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
            _torchvision.ensure()  # the factory may be torchvision's, or import it
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
