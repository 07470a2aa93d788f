"""Lightning Fabric without what it does not need."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from calibrant.training.fabric import Fabric
from lightning_fabric.utilities.imports import _TORCHMETRICS_GREATER_EQUAL_1_0_0 as is_recent
before = [name for name in ("torchmetrics", "torchvision", "transformers") if name in sys.modules]
from calibrant.torchmetrics import ConfidenceSketch
from torchmetrics import Metric
assert issubclass(ConfidenceSketch, Metric)
print(json.dumps([before, is_recent, Fabric.__name__]))
"""


@pytest.mark.slow
def test_fabric_knows_the_version_of_torchmetrics_and_does_not_import_it():
    """In a new process; and torchmetrics itself can be imported afterwards."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [[], True, "Fabric"]
