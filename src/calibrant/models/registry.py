"""Networks by name: the registry with their facts, and building one from it, from timm or from any factory."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from calibrant.base import torchvision_operators
from calibrant.base.checks import LARGEST_SEED, check_choice, check_integer, check_size, did_you_mean
from calibrant.base.extras import need
from calibrant.models import foreign

_BYTES = 2 * 4  # a weight and its gradient


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The facts of one registered network.

    Attributes:
        name: short name, as in `build`.
        builder: builds the network; its first parameter is ``num_classes``, its keywords are the options.
        summary: one line.
        source: paper or code that it follows.
        input_size: shape of one usual input.
        num_classes: default number of classes, for which `published` is counted.
        task: "classification", "segmentation", "detection" or "text".
        published: the number of parameters that the source gives, None where it gives none.
        published_in: the source of that number, and what it counts.
        stems: the stems to choose from, the default first; empty where there is no choice.
        torchvision: whether torchvision has weights under this name.
        last_block: the dotted name of the last convolutional block, for class activation maps; empty if there is none.
    """

    name: str
    builder: Callable[..., nn.Module]
    summary: str
    source: str
    input_size: tuple[int, ...]
    num_classes: int
    task: str = "classification"
    published: int | None = None
    published_in: str = ""
    stems: tuple[str, ...] = ()
    torchvision: bool = False
    last_block: str = ""

    def defaults(self) -> dict[str, Any]:
        """The options and their defaults; the stem is not among them."""
        parameters = list(inspect.signature(self.builder).parameters.values())[1:]
        return {p.name: p.default for p in parameters if p.name != "stem"}


_ARCHITECTURES: dict[str, Architecture] = {}
Builder = TypeVar("Builder", bound=Callable[..., nn.Module])


def register(name: str, **facts: Any) -> Callable[[Builder], Builder]:
    """Decorator that registers a builder; ``facts`` are the other fields of `Architecture`."""

    def enter(builder: Builder) -> Builder:
        architecture = Architecture(name=name, builder=builder, **facts)
        has_stem = "stem" in inspect.signature(builder).parameters
        is_half_given = (architecture.published is None) != (not architecture.published_in)
        if name in _ARCHITECTURES or has_stem != bool(architecture.stems) or is_half_given:
            raise TypeError(f"cannot register {name!r}: taken, or its stems or its published figure are half given")
        _ARCHITECTURES[name] = architecture
        return builder

    return enter


def names(task: str | None = None) -> tuple[str, ...]:
    """Short names of all networks, or of those for one task.

    Args:
        task: "classification", "segmentation", "detection" or "text".

    Example:
        >>> from calibrant.models import names
        >>> names("text")
        ('gpcn',)
    """
    tasks = dict.fromkeys(architecture.task for architecture in _ARCHITECTURES.values())
    if task is not None and task not in tasks:
        raise ValueError(f"unknown task {task!r}: expected one of {', '.join(tasks)}")
    return tuple(name for name, architecture in _ARCHITECTURES.items() if task in (None, architecture.task))


def describe(name: str) -> Architecture:
    """The facts of the network with this short name: source, input size, options, published size.

    Example:
        >>> from calibrant.models import describe
        >>> describe("resnet50").published
        25557032
    """
    if name not in _ARCHITECTURES:
        raise ValueError(
            f"unknown model {name!r}: expected a name of names(), 'timm/NAME' or 'package.module:factory'"
            f"{did_you_mean(str(name), _ARCHITECTURES)}"
        )
    return _ARCHITECTURES[name]


def build(
    name: str,
    *,
    num_classes: int | None = None,
    stem: str | None = None,
    weights: str | Path | None = None,
    head: str = "keep",
    seed: int | None = None,
    trust_code: bool = True,
    **options: Any,
) -> nn.Module:
    """Build a network by name.

    Args:
        name: one of `names`; ``timm/NAME`` for any of timm's (extra ``timm``); or ``package.module:factory``, a
            function or class that returns a module, looked for in the current folder too.
        num_classes: logits per input (for detection with the background, class 0); if left out, as many as
            ``describe(name).num_classes``, or what timm or the factory choose.
        stem: the first layers, one of ``describe(name).stems``: "imagenet" halves the image twice before the first
            block, "32" and "64" keep its size, as the papers' code does for images of that size.
        weights: a .safetensors file, or a state dict saved by ``torch.save`` (nothing in it is executed), or
            ``torchvision:NAME`` for a network of torchvision, which downloads them.
        head: "drop" leaves out the weights of the classifier: they may be for another number of classes.
        seed: of the initial weights, without touching torch's own generator; if left out, that one is used.
        trust_code: whether a factory may be imported and called, and timm may read files and addresses; pass False for
            names that come from a file.
        **options: the network's own: ``describe(name).defaults()``; for timm and factories, their keywords.

    Returns:
        The network, in training mode. Classifiers return logits ``[N, C]``, segmentation ``[N, C, H, W]``.

    Example:
        >>> import torch
        >>> from calibrant.models import build
        >>> model = build("resnet18", num_classes=10, stem="32")
        >>> model.eval()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
        >>> build("torch.nn:Linear", in_features=4, out_features=3)
        Linear(in_features=4, out_features=3, bias=True)
    """
    if not isinstance(name, str):
        raise ValueError(f"a model is asked for by its name, got {type(name).__name__}")
    check_choice("head", head, foreign.HEADS)
    if num_classes is not None:
        check_size("num_classes", num_classes, 2)
    if seed is not None:
        check_integer("seed", seed, 0, LARGEST_SEED)
    foreign.require_trust(name, options, trust_code)
    is_registered = not name.startswith(foreign.TIMM) and ":" not in name
    if stem is not None and not is_registered:
        raise ValueError(f"model {name!r}: stems are for the networks of names(), got stem={stem!r}")
    with _seeded(seed):
        if is_registered:
            model = _build_registered(describe(name), num_classes, stem, weights, options)
        else:
            if num_classes is not None:
                options = {"num_classes": num_classes} | options
            model = (_build_timm if name.startswith(foreign.TIMM) else _build_from_factory)(name, options)
    if weights is not None:
        foreign.load_weights(
            model, weights, head=head, torchvision=name if is_registered and describe(name).torchvision else None
        )
    return model


@contextlib.contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Inside, torch draws from a generator with this seed, if there is one."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _build_registered(
    about: Architecture, num_classes: int | None, stem: str | None, weights: str | Path | None, options: dict[str, Any]
) -> nn.Module:
    name, allowed = about.name, about.defaults()
    for option in options:
        if option not in allowed:
            expected = f"expected one of {', '.join(allowed)}" if allowed else "it has none"
            raise ValueError(f"model {name!r} has no option {option!r}: {expected}")
    stems = {}
    if about.stems:
        stems["stem"] = check_choice(f"stem of {name!r}", about.stems[0] if stem is None else stem, about.stems)
        is_download = isinstance(weights, str) and weights.startswith(foreign.TORCHVISION)
        if is_download and stems["stem"] != "imagenet":
            raise ValueError(f"torchvision's weights are for stem='imagenet', got stem={stem!r} with {weights!r}")
    elif stem is not None:
        raise ValueError(f"model {name!r} has one stem only, got stem={stem!r}")
    classes = about.num_classes if num_classes is None else num_classes
    shapes = {option: value for option, value in options.items() if option != "backbone_weights"}
    check_memory(name, lambda: about.builder(classes, **stems, **shapes))
    try:
        return about.builder(classes, **stems, **options)
    except ValueError as error:
        raise ValueError(f"model {name!r}: {error}") from error


def _build_timm(name: str, options: dict[str, Any]) -> nn.Module:
    need(f"model {name!r}", "timm", "timm")
    try:
        torchvision_operators.ensure()  # timm imports torchvision
        timm = importlib.import_module("timm")
    except Exception as error:  # a torchvision that does not fit this torch raises any kind of error
        raise ValueError(f"model {name!r} needs timm, which cannot be imported ({foreign.one_line(error)})") from None
    model_name = name.removeprefix(foreign.TIMM)
    if not timm.is_model(model_name.split(".")[0]):  # what follows a dot names weights
        raise ValueError(f"timm has no model {model_name!r}{did_you_mean(model_name, timm.list_models())}")
    keywords = {"model_name": model_name} | options
    check_memory(name, lambda: timm.create_model(**keywords | {"pretrained": False, "checkpoint_path": None}))
    with foreign.refuse_pickles():
        return foreign.call_factory(name, timm.create_model, keywords)


def _build_from_factory(name: str, options: dict[str, Any]) -> nn.Module:
    factory = foreign.find_factory(name)
    if isinstance(factory, nn.Module):
        if options:
            raise ValueError(f"model {name!r} is a module already and takes no options, got {', '.join(options)}")
        return factory
    return foreign.call_factory(name, factory, options)


def check_memory(name: str, make: Callable[[], nn.Module]) -> None:
    """Raise if the weights and gradients of a network take more memory than this machine has.

    ``make`` builds it, here on the device "meta", where tensors have shapes and no values.
    """
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parameters = sum(parameter.numel() for parameter in make().parameters())
    except Exception as error:
        if isinstance(error, RuntimeError) and "overflow" in str(error):
            raise ValueError(f"model {name!r}: a layer of these sizes is larger than any memory") from None
        return  # it cannot be built on "meta", or not at all, which the caller will report
    memory = physical_memory()
    if parameters * _BYTES > memory:
        raise ValueError(
            f"model {name!r}: its {parameters:,} parameters and their gradients take "
            f"{parameters * _BYTES / 2**30:,.0f} GB, and this machine has {memory / 2**30:,.0f} GB"
        )


def physical_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode; afterwards every module has its own mode again."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
