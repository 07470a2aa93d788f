"""Networks by name: torchvision's and timm's, any factory's, and the few the papers need that neither has."""

from calibrant._imports import needs_torch

# isort: split
# Registering is what these are imported for, in the order of the docs.
from calibrant.models import small  # noqa: I001
from calibrant.models import cifar
from calibrant.models import classifiers
from calibrant.models import segmentation
from calibrant.models import detection
from calibrant.models import text
from calibrant.models.building import build
from calibrant.models.registry import Architecture, describe, names

from calibrant.models.factories import TERMINATED, call_factory, find_factory, one_line
from calibrant.models.size import physical_memory
from calibrant.models.trust import TIMM, foreign_code, require_trust
from calibrant.models.weights import check_state_fits, read_state, without_wrapper

__all__ = ["Architecture", "build", "describe", "names"]
