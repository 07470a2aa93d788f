"""Building a network by name: one of the registry, one of timm, or whatever a factory gives."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from calibrant import _torchvision
from calibrant._imports import need
from calibrant._validation import choice
from calibrant.models import weights as weights_
from calibrant.models.checks import whole
from calibrant.models.factories import call_factory, find_factory, one_line
from calibrant.models.registry import describe, nearest
from calibrant.models.size import check_size
from calibrant.models.trust import TIMM, require_trust

LARGEST_SEED = 2**63 - 1


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
            function or class that gives a module, looked for in the current folder too.
        num_classes: logits per input (for detection with the background, class 0); if left out, as many as
            ``describe(name).num_classes``, or what timm or the factory choose.
        stem: the first layers, of those in ``describe(name).stems``: "imagenet" halves the image twice before the
            first block, "32" and "64" keep it whole, as the papers' code does for images of that size.
        weights: a .safetensors file, or a state dict saved by ``torch.save`` (nothing in it is executed), or
            ``torchvision:NAME`` for a network of torchvision, which downloads them.
        head: "drop" leaves out the weights of the classifier: they may be for another number of classes.
        seed: of the initial weights, without touching torch's own generator; if left out, that one is used.
        trust_code: whether a factory may be imported and called, and timm be led to files and addresses; pass False
            for names that come from a file; `calibrant.models.trust.foreign_code` tells what they would run.
        **options: the network's own: ``describe(name).defaults()``; for timm and factories, their keywords.

    Returns:
        The network, in training mode. Classifiers give logits ``[N, C]``, segmentation ``[N, C, H, W]``.

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
    choice("head", head, weights_.HEADS)
    if num_classes is not None:
        whole("num_classes", num_classes, 2)
    if seed is not None:
        whole("seed", seed, 0, LARGEST_SEED)
    require_trust(name, options, trust_code)
    registered = not name.startswith(TIMM) and ":" not in name
    if stem is not None and not registered:
        raise ValueError(f"model {name!r}: stems are for the networks of names(), got stem={stem!r}")
    with _seeded(seed):
        if registered:
            model = _of_registry(name, num_classes, stem, weights, options)
        else:
            if num_classes is not None:
                options = {"num_classes": num_classes} | options
            model = _of_timm(name, options) if name.startswith(TIMM) else _of_factory(name, options)
    if weights is not None:
        known = describe(name).torchvision if registered else False
        weights_.load(model, weights, head=head, torchvision=name if known else None)
    return model


@contextlib.contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Draw from a generator of the block's own, if there is a seed."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _of_registry(
    name: str, num_classes: int | None, stem: str | None, weights: str | Path | None, options: dict[str, Any]
) -> nn.Module:
    about = describe(name)
    allowed = about.defaults()
    for option in options:
        if option not in allowed:
            expected = f"expected one of {', '.join(allowed)}" if allowed else "it has none"
            raise ValueError(f"model {name!r} has no option {option!r}: {expected}")
    chosen = {}
    if about.stems:
        chosen["stem"] = about.stems[0] if stem is None else stem
        choice(f"stem of {name!r}", chosen["stem"], about.stems)
        downloaded = isinstance(weights, str) and weights.startswith(weights_.TORCHVISION)
        if downloaded and chosen["stem"] != "imagenet":
            raise ValueError(f"torchvision's weights are for stem='imagenet', got stem={stem!r} with {weights!r}")
    elif stem is not None:
        raise ValueError(f"model {name!r} has one stem only, got stem={stem!r}")
    classes = about.num_classes if num_classes is None else num_classes
    shapes = {option: value for option, value in options.items() if option != "backbone_weights"}
    check_size(name, lambda: about.builder(classes, **chosen, **shapes))
    try:
        return about.builder(classes, **chosen, **options)
    except ValueError as error:
        raise ValueError(f"model {name!r}: {error}") from error


def _of_timm(name: str, options: dict[str, Any]) -> nn.Module:
    need(f"model {name!r}", "timm", "timm")
    try:
        _torchvision.ensure()  # timm imports torchvision
        timm = importlib.import_module("timm")
    except Exception as error:  # a torchvision that does not fit this torch raises whatever it likes
        raise ValueError(f"model {name!r} needs timm, which cannot be imported ({one_line(error)})") from None
    wanted = name.removeprefix(TIMM)
    if not timm.is_model(wanted.split(".")[0]):  # what follows a dot names weights
        raise ValueError(f"timm has no model {wanted!r}{nearest(wanted, timm.list_models())}")
    asked = {"model_name": wanted} | options
    check_size(name, lambda: timm.create_model(**asked | {"pretrained": False, "checkpoint_path": None}))
    with weights_.nothing_unpickled():
        return call_factory(name, timm.create_model, asked)


def _of_factory(name: str, options: dict[str, Any]) -> nn.Module:
    factory = find_factory(name)
    if isinstance(factory, nn.Module):
        if options:
            raise ValueError(f"model {name!r} is a module already and takes no options, got {', '.join(options)}")
        return factory
    return call_factory(name, factory, options)
