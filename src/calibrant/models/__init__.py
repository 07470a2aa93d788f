"""Networks by name: torchvision's, timm's, those of any factory, and the few that the papers also need."""

from calibrant._imports import needs_torch

# isort: split
# Importing these registers their networks, in the order of the docs.
from calibrant.models import small  # noqa: I001
from calibrant.models import cifar
from calibrant.models import classifiers
from calibrant.models import dense
from calibrant.models import text

from calibrant.models.detectors import build_detector, split_resnet
from calibrant.models.factories import (
    TERMINATED,
    TIMM,
    call_factory,
    find_factory,
    other_framework,
    foreign_code,
    one_line,
    require_trust,
)
from calibrant.models.registry import Architecture, build, describe, evaluation_mode, names, physical_memory
from calibrant.models.weights import check_state_fits, read_state, strip_wrapper

__all__ = ["Architecture", "build", "describe", "names"]
