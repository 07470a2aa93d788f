"""The claims of docs/evidence.md, judged as in docs/scenes.md: holds, does not hold, or within noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks._evidence_files import NETWORKS, SMOOTHED_LOGITS, interval_over_splits, verdict
from benchmarks._evidence_networks import AGREEMENT
from benchmarks._evidence_policies import RISKS, summarise
from benchmarks._evidence_repairs import gains, regret
from benchmarks._evidence_rows import present_files, span
from calibrant.metrics import Interval
from calibrant.policy import CALIBRATORS_TRIED

HARDLY_ANSWERS = 0.95  # share of splits without any answer


class Judgement(NamedTuple):
    """A claim, the numbers it rests on, the verdict, and the section that has more."""

    claim: str
    numbers: str
    verdict: str
    section: str

    def row(self) -> list[str]:
        anchor = self.section.lower().replace(" ", "-")
        return [self.claim, self.numbers, self.verdict, f"[{self.section}](#{anchor})"]


def judge_claims(results: Mapping[str, Any]) -> list[Judgement]:
    """All claims in the order of the page."""
    return [*_published(results), *_networks(results), *_repairs(results), *_choice(results)] + (
        _policies(results) if results.get("policies") else []
    )


def _published(results: Mapping[str, Any]) -> list[Judgement]:
    row = results["published"]["rows"]["ece"]
    difference = abs(row["value"] - row["published"])
    kept = "holds" if difference <= AGREEMENT["ece"] else "does not hold"
    words = f"{row['value']:.12f}, off by {difference:.1e}"
    return [Judgement("DenseNet-40's ECE is the published 0.055002704373 to 1e-8", words, kept, "Published numbers")]


def _networks(results: Mapping[str, Any]) -> list[Judgement]:
    known = {network.file: network.smoothing for network in NETWORKS}
    section = "Label smoothing on ImageNet"
    judgements = []
    for kind, words in (("with", "with label smoothing"), ("likely", "of which smoothing is likely")):
        pairs = [pair["change"] for pair in results["networks"]["pairs"] if known[pair["smoothed"]] == kind]
        for name, sign, claim in (
            ("aurc", 1, f"Networks {words} rank their errors worse (AURC) than equally accurate ones without"),
            ("coverage_5", -1, f"Networks {words} answer fewer images at 5% risk"),
            ("coverage_1", -1, f"Networks {words} answer fewer images at 1% risk"),
            ("ece", -1, f"Networks {words} have a lower ECE"),
        ):
            judgements.append(_over_pairs(claim, [pair[name] for pair in pairs], sign, section))
    return judgements


def _over_pairs(claim: str, changes: Sequence[Mapping[str, float]], sign: int, section: str) -> Judgement:
    """A claim about pairs holds when it holds for each; pairs share networks, so counts are no test."""
    intervals = [Interval(**change) for change in changes]
    verdicts = [verdict(interval, sign) for interval in intervals]
    numbers = f"{verdicts.count('holds')} of {len(verdicts)} pairs"
    if "does not hold" in verdicts:
        numbers += f", the opposite in {verdicts.count('does not hold')}"
    values = sorted(interval.value for interval in intervals)
    return Judgement(claim, f"{numbers}; {values[0]:+.4f} to {values[-1]:+.4f}", _joined(verdicts), section)


def _joined(verdicts: Sequence[str]) -> str:
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return "does not hold" if "does not hold" in verdicts else "within noise"


def _repairs(results: Mapping[str, Any]) -> list[Judgement]:
    part, section = results["repairs"], "Repairs"
    judgements = []
    for repair in ("temperature", "isotonic", "vector"):
        for metric in ("nll", "ece"):
            verdicts = [
                verdict(interval_over_splits(gains(part[file.file]["sizes"]["half"], repair, metric)), -1)
                for file in present_files(part)
            ]
            worse = verdicts.count("does not hold")
            words = f"lower in {verdicts.count('holds')} of {len(verdicts)} files, higher in {worse}"
            claim = f"{repair.capitalize()} lowers the {metric.upper()} out of sample"
            judgements.append(Judgement(claim, words, _most(verdicts), section))
    for file, repair, sign, claim in (
        ("expected_cost/cifar100_vgg19_bn", "temperature", 1, "Temperature raises the AURC of VGG19-BN on CIFAR-100"),
        (SMOOTHED_LOGITS[0], "normalisation", -1, "Logit normalisation lowers the AURC of EfficientNet-Lite0"),
    ):
        if file in part:
            change = interval_over_splits(gains(part[file]["sizes"]["half"], repair, "aurc"))
            judgements.append(Judgement(claim, span(change), verdict(change, sign), section))
    plain = {file.title: file.file for file in present_files(part) if file.file not in SMOOTHED_LOGITS}
    changes = {
        title: interval_over_splits(gains(part[file]["sizes"]["half"], "normalisation", "aurc"))
        for title, file in plain.items()
    }
    helped = [title for title, change in changes.items() if change.high < 0]
    hurt = [title for title, change in changes.items() if change.low > 0]
    words = f"lower in {len(helped)} of {len(changes)} files, higher in {len(hurt)}"
    kept = "does not hold" if helped else "holds"
    claim = "Without smoothing, logit normalisation never lowers the AURC"
    judgements.append(Judgement(claim, words, kept, section))
    return judgements


def _most(verdicts: Sequence[str]) -> str:
    """A claim about files holds for all, for some, or for none."""
    if set(verdicts) == {"holds"}:
        return "holds"
    return "does not hold" if "does not hold" in verdicts else "holds or within noise"


def regret_changes(results: Mapping[str, Any], first: str, second: str, size: str) -> list[float]:
    """By file, how much more the second rule costs than the first."""
    part = results["repairs"]
    splits = [part[file.file]["sizes"][size] for file in present_files(part)]
    return [regret(own, second) - regret(own, first) for own in splits]


def over_files(changes: Sequence[float]) -> Interval:
    """The mean over files, and its t-interval."""
    mean, error = float(np.mean(changes)), float(np.std(changes, ddof=1)) / math.sqrt(len(changes))
    reach = float(stats.t.ppf(0.975, len(changes) - 1)) * error
    return Interval(mean, mean - reach, mean + reach)


def _choice(results: Mapping[str, Any]) -> list[Judgement]:
    section = "The automatic choice"
    rule = "one standard error"
    part = results["repairs"]
    judgements = []
    fixed = min(
        ("none", *CALIBRATORS_TRIED),
        key=lambda name: float(np.mean([regret(part[f.file]["sizes"]["half"], name) for f in present_files(part)])),
    )
    for size, words in (("half", "half of a file"), ("sixth", "a sixth of a file")):
        changes = regret_changes(results, fixed, rule, size)
        claim = f"Fitted on {words}, the automatic choice costs less NLL than the best single repair ({fixed})"
        judgements.append(_over_files(claim, changes, section))
        changes = regret_changes(results, "95%, shared", rule, size)
        claim = f"Fitted on {words}, it costs less NLL than the former rule"
        judgements.append(_over_files(claim, changes, section))
    return judgements


def _over_files(claim: str, changes: Sequence[float], section: str) -> Judgement:
    change = over_files(changes)
    lower, higher = sum(c < -1e-9 for c in changes), sum(c > 1e-9 for c in changes)
    words = f"{span(change)}; less on {lower} files, more on {higher}, the same on {len(changes) - lower - higher}"
    return Judgement(claim, words, verdict(change, -1), section)


def _policies(results: Mapping[str, Any]) -> list[Judgement]:
    part, section = results["policies"], "Policies"
    judgements = []
    for risk in RISKS:
        summaries = [summarise(part[file.file]["targets"][str(risk)], risk) for file in present_files(part)]
        verdicts = [summary["verdict"] for summary in summaries]
        worst = max(summary["beyond"] for summary in summaries)
        silent = sum(summary["abstained"] >= HARDLY_ANSWERS for summary in summaries)
        words = f"kept on {verdicts.count('holds')} of {len(verdicts)} files (on {silent} of them it hardly ever "
        words += f"answers), broken on {verdicts.count('does not hold')}; above the target beyond chance in at most "
        words += f"{worst:.1%} of splits"
        claim = f"At most {risk:.0%} of the answers are wrong, with 95% confidence"
        judgements.append(Judgement(claim, words, _joined(verdicts), section))
    return judgements
