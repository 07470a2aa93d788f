"""The demonstration: one network trained six ways on embedded data, compared, repaired, and made to abstain.

What the papers found is put as differences with an expected sign, one per seed. A claim holds when the 95% t-interval
of its mean lies on the expected side of 0, does not hold when it lies on the other, and is within noise otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from calibrant._imports import MissingExtraError
from calibrant._progress import Progress, silent
from calibrant.auditing import audit
from calibrant.experiments.comparison import Comparison
from calibrant.experiments.page import write
from calibrant.experiments.pairs import pair_values
from calibrant.experiments.results import Results
from calibrant.experiments.study import Contender, PlannedRun, Study
from calibrant.experiments.tables import Table
from calibrant.metrics import describe
from calibrant.predictions import Predictions
from calibrant.selective import Policy
from calibrant.training import Recipe, check_recipe

Data = Literal["scenes", "digits"]
METHODS = ("ce", "ls", "mbls", "acls", "lr", "als")
SETTINGS: dict[str, dict[str, Any]] = {"ls": {"alpha": 0.1}, "mbls": {"margin": 6.0}, "acls": {"margin": 6.0}}
SEEDS = 3
RISK = 0.05
ABSTAINING = "acls"
_NAMES = (
    "Methods: ce is cross-entropy, ls label smoothing, mbls margin-based label smoothing, acls adaptive and "
    "conditional label smoothing, lr label relaxation."
)
_ALS = (
    " als smooths every target by how much of the crop the object fills; it is unsure by design, which shows as a "
    "large ECE, and surely so where no object is in sight."
)
_NUMBERS = (
    "Numbers: ECE is how far confidence lies from accuracy, AECE the same in bins of equal size; NLL judges the "
    "probabilities; AURC is the error rate over all shares of samples that could be answered, the most confident "
    "first. Lower is better."
)

_RECIPES: dict[str, dict[str, Any]] = {
    "scenes": {
        "title": "Six ways to train, on scenes",
        "data": {
            "layout": "scenes",
            "val": "val",
            "options": {"context": 0.9, "ambiguous": 0.0},
            "split_options": {"train": {"samples": 1800}, "val": {"samples": 2000}, "test": {"samples": 2000}},
            "train_steps": [{"step": "random_crop", "size": 32, "padding": 2}, {"step": "flip"}],
            "also": {"context": "context-only", "texture": {"options": {"shift": "texture"}}},
        },
        "model": {"name": "small_cnn", "width": 16},
        "optimiser": {"rate": 0.1, "nesterov": True, "weight_decay": 1e-4},
        "schedule": {"name": "cosine", "warmup": 1},
        "training": {"epochs": 20, "batch_size": 32, "channels_last": True},
    },
    "digits": {
        "title": "Five ways to train, on digits",
        "data": {"layout": "digits", "val": "val"},
        "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [256]},
        "optimiser": {"rate": 0.1, "nesterov": True},
        "schedule": {"name": "cosine", "warmup": 1},
        "training": {"epochs": 30, "batch_size": 32},
    },
}


class Quantity(NamedTuple):
    """A number of a method: a metric on a set, before or after a repair."""

    method: str
    metric: str
    set: str = "test"
    posthoc: str = "none"


@dataclass(frozen=True)
class Claim:
    """A difference and its expected sign: ``first - second`` is above 0, or below."""

    words: str
    first: Quantity
    second: Quantity
    above: bool


CLAIMS = (
    Claim("Cross-entropy is overconfident: its mean confidence is above its accuracy",
          Quantity("ce", "mean_confidence"), Quantity("ce", "accuracy"), True),
    Claim("A temperature lowers the ECE of cross-entropy",
          Quantity("ce", "ece", posthoc="temperature"), Quantity("ce", "ece"), False),
    *(Claim(f"{title} lowers the ECE", Quantity(name, "ece"), Quantity("ce", "ece"), False)
      for name, title in (("ls", "Label smoothing"), ("mbls", "MbLS"), ("acls", "ACLS"), ("lr", "Label relaxation"))),
    Claim("Label smoothing ranks errors worse: its AURC is higher",
          Quantity("ls", "aurc"), Quantity("ce", "aurc"), True),
    Claim("Logit normalisation lowers the AURC of label smoothing",
          Quantity("ls", "aurc", posthoc="logit-norm"), Quantity("ls", "aurc"), False),
    Claim("Where no object is in sight, ALS is less confident than cross-entropy",
          Quantity("als", "mean_confidence", "context"), Quantity("ce", "mean_confidence", "context"), False),
)  # fmt: skip


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration leaves.

    Attributes:
        comparison: Of the methods.
        tables: As they are written.
        effects: The papers' claims, looked for here.
        page: The one to open.
        abstaining: What the policy of one method does: sentences.
    """

    comparison: Comparison
    tables: Mapping[str, Table]
    effects: Sequence[Mapping[str, Any]]
    page: Path
    abstaining: Sequence[str]


def demo_recipe(data: Data, quick: bool = False) -> Recipe:
    """The recipe of the demonstration; a quick one shows the way and proves nothing."""
    if data not in _RECIPES:
        raise ValueError(f"the data of the demonstration must be {' or '.join(_RECIPES)}, got {data!r}")
    plain = dict(_RECIPES[data])
    if quick:
        plain["title"] += " (quick: too short to prove anything)"
        plain["training"] = plain["training"] | {"epochs": 3}
    return check_recipe(plain, f"the demonstration on {data}")


def demo_study(data: Data, seed: int = 0, quick: bool = False) -> Study:
    """What is compared."""
    labels = [name for name in METHODS if data == "scenes" or name != "als"]
    methods = {name: Contender(name, SETTINGS.get(name, {})) for name in labels}
    return Study(demo_recipe(data, quick), methods, tuple(range(seed, seed + (2 if quick else SEEDS))))


def short_name_legend(data: Data) -> list[str]:
    """What the short names mean, for readers who do not know the papers."""
    return [_NAMES + (_ALS if data == "scenes" else ""), _NUMBERS]


def demonstrate(
    comparison: Comparison, data: Data, *, seed: int = 0, quick: bool = False, progress: Progress = silent
) -> Demonstration:
    """Audit, repair, abstain and export what the comparison of `demo_study` has trained, and write its page."""
    folder = comparison.folder
    files = []
    if (folder / "lens.svg").exists():
        files.append(["what six losses train towards, for one prediction", "lens.svg"])
    progress("auditing cross-entropy", 0, None)
    if run := next((run for run in comparison.finals if run.method == "ce"), None):
        test, val = _predictions(comparison, run)
        audit({"ce, test": test}, val=val).to_html(folder / "audit.html")
        files.append(["audit of cross-entropy, the first seed", "audit.html"])
    progress("fitting a policy for 5% risk, and exporting it", 0, None)
    sentences = _abstain(comparison, files)
    claims = effects(comparison.results)
    tables = write(
        comparison, reference="ce", effects=claims, lead=[*sentences, *short_name_legend(data)], files=files,
        commands=[f"calibrant demo --data {data} --seed {seed}{' --quick' if quick else ''}"],
    )  # fmt: skip
    return Demonstration(comparison, tables, claims, folder / "index.html", sentences)


def effects(results: Results) -> list[dict[str, Any]]:
    """Every claim that the results have numbers for."""
    return [effect for claim in CLAIMS if (effect := _effect(claim, results)) is not None]


def _effect(claim: Claim, results: Results) -> dict[str, Any] | None:
    first, second = (
        results.where(stage="final", method=v.method).by_seed(metric=v.metric, set=v.set, posthoc=v.posthoc)
        for v in (claim.first, claim.second)
    )
    pair = pair_values(first, second, better="high" if claim.above else "low")
    if pair is None:
        return None
    sign = 1 if claim.above else -1
    low, high = sorted((sign * pair.low, sign * pair.high))  # not numbers for one seed: neither side of 0
    verdict = "holds" if low > 0 else "does not hold" if high < 0 else "within noise"
    unit = describe(claim.first.metric).unit
    words = claim.words
    if claim.first.posthoc == "logit-norm" and not _has_norm(results, claim.first):
        words += " (here no norm helped, and the confidence is kept)"
    return {"claim": words, "values": list(pair.differences), "mean": pair.mean, "low": pair.low, "high": pair.high,
            "verdict": verdict, "unit": unit}  # fmt: skip


def _has_norm(results: Results, quantity: Quantity) -> bool:
    """Whether a norm was found for any seed."""
    rows = results.where(stage="final", method=quantity.method, set=quantity.set, posthoc=quantity.posthoc)
    return any(not math.isnan(power) for power in rows.column("parameter"))


def _predictions(comparison: Comparison, run: PlannedRun) -> list[Predictions]:
    """Of the test and of the validation data."""
    return [Predictions.open(comparison.run_folder(run) / f"{name}.npz") for name in ("test", "val")]


def _abstain(comparison: Comparison, files: list[list[str]]) -> list[str]:
    """A policy of one model, fitted on validation data, evaluated on test data and exported; return sentences about it.

    Which method's was settled beforehand: had these data chosen it too, the promise would be weaker than it says.
    """
    run = next((run for run in comparison.finals if run.method == ABSTAINING), None)
    if run is None:
        return []
    folder = comparison.folder
    test, val = _predictions(comparison, run)
    policy = Policy.fit(val, target_risk=RISK)
    policy.save(folder / "policy.json")
    files.append([f"policy for {ABSTAINING}", "policy.json"])
    accept = np.asarray(policy.decide(test.logits).accept)
    right = test.logits.argmax(1) == test.labels
    if accept.any():
        outcome = (
            f"answers {float(accept.mean()):.1%} of the test samples and is wrong on "
            f"{float(1 - right[accept].mean()):.2%} of those; without it, it is wrong on "
            f"{float(1 - right.mean()):.1%} of all."
        )
    else:
        outcome = f"answers nothing here. {policy.summary}"
    sentences = [
        f"The policy of {ABSTAINING} (the first seed) for {RISK:.0%} risk, at {policy.confidence:.0%} confidence, "
        f"fitted on {len(val):,} validation samples, {outcome}"
    ]
    try:
        from calibrant.export import export_onnx
        from calibrant.training import load_model

        model, shape, _ = load_model(comparison.run_folder(run).path)
        exported = export_onnx(policy, folder / "model.onnx", model=model, input_shape=shape)
    except MissingExtraError as missing:
        return [*sentences, f"{missing}."]
    files.append(["network and policy as one ONNX graph", "model.onnx"])
    return [
        *sentences,
        f"Network and policy are one ONNX graph; onnxruntime answered as they do on {exported.rows:,} inputs.",
    ]
