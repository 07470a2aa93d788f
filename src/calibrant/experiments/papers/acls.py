"""Tables and figures of ACLS."""

from __future__ import annotations

from calibrant.experiments.papers.recipe_items import tables_beside
from calibrant.experiments.papers.registry import Output, item
from calibrant.experiments.papers.workbench import Workbench

_CLASSIFICATION = (
    "acls_cifar10_resnet50", "acls_cifar10_resnet101", "acls_tiny_imagenet_resnet50", "acls_tiny_imagenet_resnet101",
    "acls_imagenet_resnet50",
)  # fmt: skip


@item("acls.table3", "Accuracy, ECE and AECE of eleven losses on image data", recipes=_CLASSIFICATION, minutes=2)
def table3(bench: Workbench) -> Output:
    """A table for each data set and network; in small one, of the first."""
    return tables_beside(bench, _CLASSIFICATION, "3")
