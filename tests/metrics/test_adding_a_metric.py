"""A metric is a function of groups and an entry of the catalogue; sketches, intervals and audits then have it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import calibrant

FUNCTION = '''

@measured
def trusted_errors(
    score: ArrayLike | Groups, correct: ArrayLike | None = None, *, weight: ArrayLike | None = None
) -> float:
    """The share of errors among predictions of a score above one half."""
    groups = as_groups(score, correct, weight)
    return result(groups.errors[..., groups.score > 0.5].sum(-1) / groups.size)
'''
ENTRY = """    Metric("trusted_errors", "Trusted errors", "share", "Selective", "low", (0, 1),
           "share of predictions that are trusted and wrong", table="ranked"),
"""
PROGRAM = """
import json
import numpy as np
from calibrant import Predictions, audit

rng = np.random.default_rng(3)
p = rng.uniform(0.05, 0.95, 800)
p = np.stack([p, 1 - p], 1)
labels = (rng.random(800) < p[:, 1]).astype(int)
found = audit(Predictions.from_probabilities(p, labels), replicates=50)
wrong = p.argmax(1) != labels
print(json.dumps([found.metrics["trusted_errors"], *found.intervals["trusted_errors"], float(wrong.mean())]))
"""


@pytest.mark.slow
def test_an_audit_shows_a_metric_that_is_added_in_two_places(tmp_path):
    source = Path(calibrant.__file__).parent
    shutil.copytree(source, tmp_path / "calibrant", ignore=shutil.ignore_patterns("__pycache__"))
    metrics = tmp_path / "calibrant" / "metrics"
    with (metrics / "selective.py").open("a") as file:
        file.write(FUNCTION)
    catalogue = (metrics / "catalogue.py").read_text()
    (metrics / "catalogue.py").write_text(catalogue.replace(")  # fmt: skip\n\n#: Every", f"{ENTRY})\n\n#: Every", 1))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    value, low, high, wrong = json.loads(run.stdout)
    assert value == wrong  # with two classes the confidence is above one half
    assert 0 <= low < value < high < 0.5
