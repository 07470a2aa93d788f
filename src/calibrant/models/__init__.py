"""Networks by name: torchvision's, timm's, those of any factory, and the few that the papers also need."""

from calibrant.base.extras import needs_torch

# isort: split
# Importing these registers their networks, in the order of the docs.
from calibrant.models import small  # noqa: I001
from calibrant.models import classifiers
from calibrant.models import segmentation
from calibrant.models.detectors import build_detector, split_resnet
from calibrant.models import text

from calibrant.models.foreign import (
    TERMINATED,
    TIMM,
    call_factory,
    check_state_fits,
    find_factory,
    foreign_code,
    one_line,
    other_framework,
    read_state,
    require_trust,
    strip_wrapper,
)
from calibrant.models.registry import Architecture, build, describe, evaluation_mode, names, physical_memory

__all__ = ["Architecture", "build", "describe", "names"]
