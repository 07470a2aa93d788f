"""A promise is a file and an export line; fits, files, judgements, watches and the command line then know it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import calibrant

PROMISE = '''"""Answered: at least so many of all samples are answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from calibrant.base.checks import Bools, Ints
from calibrant.base.entries import OpenShare
from calibrant.base.numbers import allowed
from calibrant.metrics import Doubles
from calibrant.promises.base import ClassNames, MeanPromise, promise
from calibrant.promises.bounds import fewest
from calibrant.promises.parts import ThresholdData
from calibrant.promises.recall import recall_threshold


@promise("answered")
class AnsweredShare(MeanPromise):
    """At least so many of all samples are answered."""

    spelling: ClassVar[str] = "answered >= SHARE"
    counts_silence: ClassVar[bool] = True

    share: OpenShare

    def __init__(self, share: float | None = None, **entries: Any) -> None:
        super().__init__(**entries if share is None else {"share": share, **entries})

    @property
    def mean_loss(self) -> float:
        return round(1 - self.share, 12)

    def search(self, data: ThresholdData) -> tuple[Callable[[float], float], int]:
        at = lambda loss: recall_threshold(data.scored.score, round(1 - loss, 12), data.delta)
        return at, fewest(self.mean_loss, data.delta)

    def losses(self, labels: Ints, answers: Ints, accept: Bools) -> tuple[Bools, Doubles]:
        return np.ones_like(accept), (~accept).astype(np.float64)

    def clause(self, class_names: ClassNames) -> str:
        return f"at least {allowed(self.share)} of all samples are answered"
'''
PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from calibrant import Monitor, Policy, Predictions, audit
from calibrant.cli import main
from calibrant.policy import Outcome
from calibrant.promises import AnsweredShare

def draw(n, seed):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((n, 4))
    return Predictions.from_logits(logits, (logits + rng.gumbel(size=logits.shape)).argmax(1))

val, new = draw(2000, 0), draw(5000, 1)
policy = Policy.fit(val, AnsweredShare(0.8), confidence=0.9)
policy.save("policy.json")
again = Policy.load("policy.json")
outcome = Outcome(again)
outcome.add(new, again.decide(new))
watch = Monitor(again).update(new)
text = audit(new, policy=again, replicates=20).document["policy"]["text"]
val.save("val.npz")
try:
    main(["fit", "val.npz", "--promise", "answered >= 80%", "--confidence", "0.9", "-o", "cli.json", "--quiet"])
except SystemExit as end:
    assert not end.code
by_command = json.loads(Path("cli.json").read_text())
print(json.dumps({
    "entries": policy.document["promise"], "same": again.promise == policy.promise,
    "coverage": policy.threshold.coverage.value, "summary": policy.summary, "new": outcome.coverage.value,
    "kept": outcome.promise_kept, "text": text, "untested": watch.watch.untested[0],
    "command": by_command["threshold"]["accept_from"] == policy.document["threshold"]["accept_from"],
    "unknown": Policy.fit(val, AnsweredShare(0.999)).summary,
}))
"""


@pytest.mark.slow
def test_everything_knows_a_promise_that_is_added_in_two_places(tmp_path):
    source = Path(calibrant.__file__).parent
    shutil.copytree(source, tmp_path / "calibrant", ignore=shutil.ignore_patterns("__pycache__"))
    promises = tmp_path / "calibrant" / "promises"
    (promises / "answered.py").write_text(PROMISE)
    exports = (promises / "__init__.py").read_text()
    line = "from calibrant.promises.expected_risk import ExpectedRisk\n"
    added = exports.replace(line, f"{line}from calibrant.promises.answered import AnsweredShare\n", 1)
    assert added != exports
    (promises / "__init__.py").write_text(added)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert not run.returncode, run.stderr
    facts = json.loads(run.stdout.splitlines()[-1])
    assert facts["entries"].pop("seen")["rows"] > 1500
    assert facts["entries"] == {"of": "answered", "share": 0.8}
    assert 0.8 < facts["coverage"] < 0.83  # the binomial limit of some 1,600 samples lies 1.2% above
    assert 0.78 < facts["new"] < 0.85
    assert "With 90% confidence at least 80% of all samples are answered" in facts["summary"]
    assert facts["kept"] in ("yes", "no sign", "unclear")
    assert "at least 80% of all samples are answered" in facts["text"]
    assert "no error rate" in facts["untested"]
    assert facts["same"]
    assert facts["command"]
    assert "99.9%" in facts["unknown"]
