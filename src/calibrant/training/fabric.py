"""Lightning Fabric, imported without torchmetrics.

Fabric imports torchmetrics, which imports torchvision, SciPy's signal processing and, where it is installed,
transformers: more than torch itself takes. All that Fabric needs of it is its version, which the package's metadata
tell.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def _version_alone(package: str) -> Iterator[None]:
    """Inside, importing the package gives its version and nothing else; one that was imported before is left alone."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = None
    if package in sys.modules or version is None:
        yield
        return
    stand_in = ModuleType(package)
    vars(stand_in)["__version__"] = version
    sys.modules[package] = stand_in
    try:
        yield
    finally:
        del sys.modules[package]


with _version_alone("torchmetrics"):
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

__all__ = ["DDPStrategy", "Fabric"]
