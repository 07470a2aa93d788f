"""Lightning Fabric, imported without torchmetrics.

Fabric imports torchmetrics, which imports torchvision, SciPy's signal processing and, where installed, transformers:
more than torch itself. Fabric needs only its version, which is in the package's metadata.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def _version_alone(package: str) -> Iterator[None]:
    """Inside, importing the package gives only its version, unless it was imported before."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = None
    if package in sys.modules or version is None:
        yield
        return
    stub = ModuleType(package)
    vars(stub)["__version__"] = version
    sys.modules[package] = stub
    try:
        yield
    finally:
        del sys.modules[package]


with _version_alone("torchmetrics"):
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

__all__ = ["DDPStrategy", "Fabric"]
