"""The tables of docs/evidence.md that hold a row per file or network, and their comparison with rows computed anew.

The page and the check share these functions, so a row that is recomputed can be looked up on the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._evidence_files import LOGIT_FILES, NETWORKS, LogitFile, interval_over_splits
from benchmarks._evidence_networks import AGREEMENT
from benchmarks._evidence_policies import RISKS, summarise
from benchmarks._evidence_repairs import gains, mean_over_splits, regret
from calibrant.metrics import Interval

#: Files that `--check` recomputes: those whose repairs and policies take a few seconds each.
CHECKED_FILES = tuple(
    f"expected_cost/{name}"
    for name in (
        "cifar10_repvgg_a2",
        "agnews_gpt2",
        "sst2_gpt2",
        "sst2_gpt2_4shot",
        "iemocap_wav2vec_pt",
        "pneumoniamnist_resnet50",
        "adrenalmnist_resnet50",
    )
)
TITLES = {network.file: network.title for network in NETWORKS}
REPAIRS = ("temperature", "ensemble", "isotonic", "vector", "auto")
Rows = list[list[str]]
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def present_files(part: Mapping[str, Any]) -> list[LogitFile]:
    """The files of a part in the order of the page."""
    return [file for file in LOGIT_FILES if file.file in part]


def span(change: Mapping[str, float] | Interval, digits: int = 4) -> str:
    """A difference with its interval."""
    value, low, high = change.values() if isinstance(change, Mapping) else (change.value, change.low, change.high)
    return f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def marked(change: Interval, digits: int = 4) -> str:
    """The same, in bold where the interval lies above 0: where a repair hurts."""
    return f"**{span(change, digits)}**" if change.low > 0 else span(change, digits)


PUBLISHED_HEAD = ["DenseNet-40, CIFAR-10 test", "published", "here", "difference", "allowed"]


def published_rows(results: Mapping[str, Any]) -> Rows:
    """The published numbers beside ours."""
    titles = {"ece": "ECE, 15 bins", "nll_raised": "NLL of probabilities of at least 1e-15"}
    rows = []
    for name, row in results["published"]["rows"].items():
        difference = f"{row['value'] - row['published']:.1e}"
        rows.append([titles[name], f"{row['published']:.12g}", f"{row['value']:.12g}", difference])
        rows[-1].append(f"{AGREEMENT[name]:.0e}")
    return rows


NETWORKS_HEAD = ["network", "smoothing", "accuracy", "ECE", "AURC", "E-AURC", "coverage at 5% risk", "at 1% risk"]


def network_rows(results: Mapping[str, Any]) -> Rows:
    """Every network, those of one group together."""
    rows = []
    for network in NETWORKS:
        values = results["networks"]["rows"][network.file]["values"]
        shares = [f"{values[name]:.1%}" for name in ("coverage_5", "coverage_1")]
        numbers = [f"{values[name]:.4f}" for name in ("ece", "aurc", "e_aurc")]
        rows.append([network.title, network.smoothing, f"{values['accuracy']:.2%}", *numbers, *shares])
    return rows


PAIRS_HEAD = ["smoothed, less plain", "accuracy", "ECE", "AURC", "E-AURC", "coverage at 5% risk", "at 1% risk"]


def pair_rows(results: Mapping[str, Any], smoothing: str) -> Rows:
    """Networks of about equal accuracy: those of which ``smoothing`` is known, less one without."""
    known = {network.file: network.smoothing for network in NETWORKS}
    return [
        [f"{TITLES[pair['smoothed']]}, {TITLES[pair['without']]}", f"{pair['change']['accuracy']['value']:+.4f}"]
        + [span(pair["change"][name], 4 if "aurc" in name else 3) for name in ("ece", "aurc", "e_aurc")]
        + [span(pair["change"][name], 3) for name in ("coverage_5", "coverage_1")]
        for pair in results["networks"]["pairs"]
        if known[pair["smoothed"]] == smoothing
    ]


def repairs_head(metric: str) -> list[str]:
    """Of a table of changes in a metric."""
    repairs = ["normalisation", *REPAIRS] if metric == "AURC" else REPAIRS
    return ["file", f"{metric} as it is", *repairs]


def repair_rows(results: Mapping[str, Any], metric: str) -> Rows:
    """What each repair changes on each file, fitted on half of it."""
    rows = []
    for file in present_files(results["repairs"]):
        splits = results["repairs"][file.file]["sizes"]["half"]
        repairs = ["normalisation", *REPAIRS] if metric == "aurc" else REPAIRS
        changes = [marked(interval_over_splits(gains(splits, repair, metric))) for repair in repairs]
        rows.append([file.title, f"{mean_over_splits(splits, 'none', metric):.4f}", *changes])
    return rows


CHOICE_HEAD = ["file", "chosen on a half", "regret", "former rule's", "chosen on a sixth", "regret", "former rule's"]


def choice_rows(results: Mapping[str, Any]) -> Rows:
    """What was chosen on each file, and what that costs against the repair that is best there."""
    rows = []
    for file in present_files(results["repairs"]):
        row = [file.title]
        for size in ("half", "sixth"):
            splits = results["repairs"][file.file]["sizes"][size]
            names = [split["choices"]["one standard error"] for split in splits]
            counts = {name: names.count(name) for name in dict.fromkeys(names)}
            words = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
            row += [words, *(f"{regret(splits, rule):.4f}" for rule in ("one standard error", "95%, shared"))]
        rows.append(row)
    return rows


POLICIES_HEAD = [
    "file", "splits", "coverage", "a clairvoyant's", "risk", "abstained", "above target", "beyond chance", "promise",
]  # fmt: skip


def policy_rows(results: Mapping[str, Any], risk: float) -> Rows:
    """How the policies of each file did at a target risk."""
    rows = []
    for file in present_files(results["policies"]):
        part = results["policies"][file.file]
        summary = summarise(part["targets"][str(risk)], risk)
        shares = [f"{summary[name]:.1%}" for name in ("coverage", "clairvoyant")]
        broken = f"{summary['beyond']:.1%} [{summary['low']:.1%}, {summary['high']:.1%}]"
        answered = f"{summary['risk']:.2%}" if summary["abstained"] < 1 else "none answered"
        rows.append([file.title, str(part["splits"]), *shares, answered, f"{summary['abstained']:.0%}"])
        rows[-1] += [f"{summary['above']:.1%}", broken, summary["verdict"]]
    return rows


def checked_tables(results: Mapping[str, Any]) -> dict[tuple[str, ...], Rows]:
    """Every table whose rows can be compared one by one, by its header."""
    tables = {
        ("published", *PUBLISHED_HEAD): published_rows(results),
        ("networks", *NETWORKS_HEAD): network_rows(results),
        ("pairs", *PAIRS_HEAD): [row for kind in ("with", "likely") for row in pair_rows(results, kind)],
        ("choice", *CHOICE_HEAD): choice_rows(results),
    }
    for metric in ("nll", "ece", "aurc"):
        tables["repairs", *repairs_head(metric.upper())] = repair_rows(results, metric)
    for risk in RISKS:
        tables[str(risk), *POLICIES_HEAD] = policy_rows(results, risk)
    return tables


def differing_rows(results: Mapping[str, Any], page: str) -> list[str]:
    """Rows of the results that the page has otherwise, or not at all, as "page: ...; now: ..."."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    differing = []
    for head, rows in checked_tables(results).items():
        for row in rows:
            candidates = [line for line in lines if line[0] == row[0] and len(line) == len(row)]
            if not any(is_close(line, row) for line in candidates):
                shown = " | ".join(candidates[0]) if len(candidates) == 1 else f"{len(candidates)} rows of that name"
                differing.append(f"{head[0]}: page: {shown}; now: {' | '.join(row)}")
    return differing


def is_close(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two rows say the same: words are equal, numbers within two units of their last digit."""
    for a, b in zip(first, second, strict=True):
        if NUMBER.sub("#", a.replace("*", "")) != NUMBER.sub("#", b.replace("*", "")):
            return False
        for x, y in zip(NUMBER.findall(a), NUMBER.findall(b), strict=True):
            unit = 10.0 ** -len(x.partition("e")[0].partition(".")[2])
            if "e" not in x and abs(float(x) - float(y)) > 2.001 * unit:
                return False
    return True
