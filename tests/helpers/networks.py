"""Networks without memory, and their numbers of parameters."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from calibrant.base import torchvision_operators
from calibrant.models import build

torchvision_operators.ensure()

CLASSIFIERS = [
    "mlp", "small_cnn", "small_resnet", "resnet20", "resnet56", "resnet20v2", "resnet56v2", "vgg16_cifar",
    "densenet_bc_100_12", "resnet18", "resnet34", "resnet50", "resnet101", "vgg16", "vgg16_bn", "densenet121",
    "densenet161", "densenet169", "densenet201", "vit_b_16", "vit_s_16",
]  # fmt: skip


SEGMENTATION = ["deeplabv3_resnet50", "deeplabv3_resnet101", "deeplabv3plus_resnet50", "deeplabv3plus_resnet101"]


SEGMENTATION += ["deeplabv3plus_small"]


def on_meta(name: str, **options) -> nn.Module:
    with torch.device("meta"):
        return build(name, **options)


def count(model: nn.Module, running: bool = False) -> int:
    total = sum(p.numel() for p in model.parameters())
    if running:
        total += sum(b.numel() for name, b in model.named_buffers() if name.endswith(("running_mean", "running_var")))
    return total


#: Of the large families one is enough to run; all are counted above.
RUN = [
    name
    for name in CLASSIFIERS
    if name not in ("densenet121", "densenet161", "densenet169", "densenet201", "resnet34", "resnet101", "vit_b_16")
]


def saved(path: Path, model: nn.Module, wrapped=lambda state: state) -> Path:
    state = wrapped(model.state_dict())
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path
