"""The study of the demonstration: the papers' methods over seeds, on drawn scenes, and what they claim.

A claim is a difference with an expected sign, one per seed. It holds when the 95% t-interval of its mean lies on that
side of 0, does not hold when it lies on the other side or the difference is 0 for every seed, and is within noise
otherwise. Settings were chosen on seeds from 1000 on, which are never reported: on 1000 to 1004 every difference but
that of ``norm-test`` was above four standard deviations of a seed's, for which `SEEDS` seeds suffice most of the time.
`CHECK` is what ``./dev bench demo_claims`` found on disjoint sets of seeds; the file is missing until it has run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from calibrant.base.numbers import round_percent
from calibrant.experiments.comparison import Comparison
from calibrant.experiments.comparison_page import write
from calibrant.experiments.papers.workbench import EXPERIMENT
from calibrant.experiments.results import Results
from calibrant.experiments.spaces import Settings
from calibrant.experiments.study import Contender, Study
from calibrant.experiments.tables import Table
from calibrant.experiments.tables.pairs import pair_values
from calibrant.metrics import describe
from calibrant.training import Recipe, check_recipe

METHODS: dict[str, Settings] = {
    "ce": {}, "ls": {"alpha": 0.1}, "mbls": {"margin": 6.0}, "acls": {"margin": 6.0}, "lr": {}, "als": {},
}  # fmt: skip
SEEDS = 4
#: Of the sets of seeds that were checked, the share in which a claim must hold for the page to say that it does.
ENOUGH = 0.95
#: In the package `calibrant.experiments`.
CHECK = "demo_claims.json"

STUDY_LEGEND = (
    "Methods: CE is cross-entropy, LS label smoothing, MbLS margin-based label smoothing, ACLS adaptive and "
    "conditional label smoothing, LR label relaxation. ALS smooths every target by how much of the picture the object "
    "fills; it is unsure by design, which shows as a large ECE, above all where no object is in sight.",
    "Sets: texture shows the test pictures with colours and patterns never seen, mixed is both together, context is "
    "the test pictures with every object covered.",
    "Numbers: ECE is how far confidence lies from accuracy, AECE the same in bins of equal size; NLL judges the "
    "probabilities; AURC is the error rate over all shares of samples that could be answered, the most confident "
    "first. Lower is better.",
)

_RECIPE: dict[str, Any] = {"title": "Six ways to train, on scenes", **EXPERIMENT}
#: Too little for any claim: only to try it out.
_QUICK = {"train": {"samples": 200}, "val": {"samples": 200}, "test": {"samples": 300}}


class DrawnStudy(Study):
    """A study whose scenes are drawn anew for every seed: what holds over its seeds holds for other data, too."""

    def _changes(self, label: str, settings: Settings, seed: int) -> Settings:
        return super()._changes(label, settings, seed) | {"data.options.seed": seed}


class Quantity(NamedTuple):
    """A number of a method: a metric on a set, before or after a repair."""

    method: str
    metric: str
    set: str = "test"
    posthoc: str = "none"


@dataclass(frozen=True)
class Claim:
    """A difference and its expected sign: ``first - second`` is above 0, or below."""

    name: str  # in files
    words: str
    first: Quantity
    second: Quantity
    above: bool
    paper: str  # who claims it
    why: str = ""  # the reason, where it does not hold here


_TOO_FEW_SEEDS = (
    "The mean difference had this sign in all 20 checked sets; in some of them four seeds are too few for its interval."
)
CLAIMS = (
    Claim("overconfident", "Cross-entropy is overconfident: its mean confidence is above its accuracy",
          Quantity("ce", "mean_confidence"), Quantity("ce", "accuracy"), True, "ACLS, MbLS, LR"),
    Claim("temperature", "A temperature lowers the ECE of cross-entropy",
          Quantity("ce", "ece", posthoc="temperature"), Quantity("ce", "ece"), False, "MbLS"),
    *(Claim(f"{name}-ece", f"{title} lowers the ECE", Quantity(name, "ece"), Quantity("ce", "ece"), False, paper)
      for name, title, paper in (("ls", "Label smoothing", "MbLS"), ("mbls", "MbLS", "MbLS"), ("acls", "ACLS", "ACLS"),
                                 ("lr", "Label relaxation", "LR"))),
    Claim("ls-aurc", "Label smoothing ranks errors worse: its AURC is higher",
          Quantity("ls", "aurc"), Quantity("ce", "aurc"), True, "SC", _TOO_FEW_SEEDS),
    Claim("ls-aurc-mixed", "On test and shifted pictures together, label smoothing ranks errors worse, too",
          Quantity("ls", "aurc", "mixed"), Quantity("ce", "aurc", "mixed"), True, "SC", _TOO_FEW_SEEDS),
    Claim("norm-mixed", "There, logit normalisation repairs it: the AURC of label smoothing falls",
          Quantity("ls", "aurc", "mixed", "logit-norm"), Quantity("ls", "aurc", "mixed"), False, "SC"),
    Claim("norm-mixed-ce", "There, label smoothing with normalisation ranks better than cross-entropy without",
          Quantity("ls", "aurc", "mixed", "logit-norm"), Quantity("ce", "aurc", "mixed"), False, "SC"),
    Claim("norm-test", "On the test pictures alone, logit normalisation lowers the AURC of label smoothing",
          Quantity("ls", "aurc", posthoc="logit-norm"), Quantity("ls", "aurc"), False, "SC",
          "For most seeds no norm ranks the validation pictures better than the confidence does, which is then kept."),
    Claim("als-context", "Where no object is in sight, ALS is less confident than cross-entropy",
          Quantity("als", "mean_confidence", "context"), Quantity("ce", "mean_confidence", "context"), False, "ALS"),
)  # fmt: skip


@dataclass(frozen=True)
class StudyOutcome:
    """What the study leaves: the comparison, its tables as they are written, the claims, the page to open."""

    comparison: Comparison
    tables: Mapping[str, Table]
    effects: Sequence[Mapping[str, Any]]
    page: Path


def study_recipe(quick: bool = False) -> Recipe:
    """The recipe of the study; the quick one is too small to prove anything."""
    plain = dict(_RECIPE)
    if quick:
        plain["title"] += " (quick: too little to prove anything)"
        plain["data"] = plain["data"] | {"split_options": _QUICK}
        plain["training"] = plain["training"] | {"epochs": 3}
    return check_recipe(plain, "the study of the demonstration")


def plan_demo_study(seed: int = 0, quick: bool = False) -> Study:
    """Plan every method with the seeds from ``seed`` on."""
    methods = {name: Contender(name, settings) for name, settings in METHODS.items()}
    count = 2 if quick else SEEDS
    return DrawnStudy(study_recipe(quick), methods, tuple(range(seed, seed + count)))


def write_demo_study(comparison: Comparison, *, seed: int = 0, quick: bool = False) -> StudyOutcome:
    """Judge the claims and write the page of what the comparison of `plan_demo_study` has trained."""
    claims = effects(comparison.results)
    files = [["what six losses train towards, for one prediction", "lens.svg"]]
    command = f"calibrant demo --study --seed {seed}{' --quick' if quick else ''}"
    lead = [] if quick else [summarise_check(read_check())]
    tables = write(
        comparison, reference="ce", effects=claims if quick else [with_check(effect) for effect in claims],
        lead=[*lead, *STUDY_LEGEND], files=files if (comparison.folder / "lens.svg").exists() else [],
        commands=[command],
    )  # fmt: skip
    return StudyOutcome(comparison, tables, claims, comparison.folder / "index.html")


def effects(results: Results, seeds: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """Every claim that the results have numbers for, judged on some seeds or on all."""
    return [effect for claim in CLAIMS if (effect := _effect(claim, results, seeds)) is not None]


def _effect(claim: Claim, results: Results, seeds: Sequence[int] | None) -> dict[str, Any] | None:
    final = results.where(stage="final") if seeds is None else results.where(stage="final", seed=tuple(seeds))
    first, second = (
        final.where(method=v.method).by_seed(metric=v.metric, set=v.set, posthoc=v.posthoc)
        for v in (claim.first, claim.second)
    )
    pair = pair_values(first, second, better="high" if claim.above else "low")
    if pair is None:
        return None
    sign = 1 if claim.above else -1
    low, high = sorted((sign * pair.low, sign * pair.high))  # not numbers for one seed: neither side of 0
    is_nothing = len(pair.differences) > 1 and not any(pair.differences)
    verdict = "holds" if low > 0 else "does not hold" if high < 0 or is_nothing else "within noise"
    return {"name": claim.name, "claim": claim.words, "paper": claim.paper, "values": list(pair.differences),
            "mean": pair.mean, "low": pair.low, "high": pair.high, "verdict": verdict,
            "why": claim.why, "unit": describe(claim.first.metric).unit}  # fmt: skip


def read_check() -> dict[str, Any]:
    """The result of the benchmark: ``sets``, ``seeds`` per set, and in how many sets every claim ``held``.

    A check of a study with another recipe is ignored.
    """
    file = resources.files("calibrant.experiments") / CHECK
    check = dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}
    return check if check.get("study") == study_key() else {"sets": 0, "claims": {}}


def study_key() -> str:
    """A digest of the recipe, the methods and the number of seeds, which a check must match."""
    plan = json.dumps([_RECIPE, METHODS, SEEDS], sort_keys=True)
    return hashlib.sha256(plan.encode()).hexdigest()[:16]


def is_reliable(count: int, sets: int) -> bool:
    """Whether a claim held in enough of the sets of seeds: in 19 of 20."""
    return sets > 0 and count >= ENOUGH * sets


def summarise_check(check: Mapping[str, Any]) -> str:
    """A sentence on how the claims fare on other seeds."""
    if not check["sets"]:
        return "The claims have not been checked on other seeds yet: ./dev bench demo_claims does."
    counts = [entry["held"] for entry in check["claims"].values()]
    reliable = sum(is_reliable(count, check["sets"]) for count in counts)
    return (
        f"The claims were checked beforehand on {check['sets']} disjoint sets of {check['seeds']} seeds: {reliable} of "
        f"{len(counts)} held in at least {round_percent(ENOUGH)} of the sets. The count beside each claim says in how "
        "many."
    )


def with_check(effect: Mapping[str, Any]) -> dict[str, Any]:
    """A judged claim with a note: in how many of the checked sets of seeds it held, and why not where it does not.

    What holds on the seeds of this page but not on enough of the checked sets is said not to hold.
    """
    check = read_check()
    entry = check["claims"].get(effect["name"])
    verdict, notes = effect["verdict"], [f"{effect['paper']}."]
    if entry is not None:
        notes.append(f"Held in {entry['held']} of {check['sets']} checked sets.")
        if verdict == "holds" and not is_reliable(entry["held"], check["sets"]):
            verdict = "does not hold"
            notes.append("It holds for the seeds of this page, which is too little evidence.")
    if verdict != "holds" and effect["why"]:
        notes.append(effect["why"])
    return {**effect, "verdict": verdict, "note": " ".join(notes)}
