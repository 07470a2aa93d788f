"""Networks by name: torchvision's and timm's, any factory's, and the few the papers need that neither has."""

from calibrant import _needs_torch  # noqa: F401

# isort: split
# Registering is what these are imported for, in the order of the docs.
from calibrant.models import small  # noqa: F401, I001
from calibrant.models import cifar  # noqa: F401
from calibrant.models import classifiers  # noqa: F401
from calibrant.models import segmentation  # noqa: F401
from calibrant.models import detection  # noqa: F401
from calibrant.models import text  # noqa: F401
from calibrant.models.building import build
from calibrant.models.registry import Architecture, describe, names

__all__ = ["Architecture", "build", "describe", "names"]
