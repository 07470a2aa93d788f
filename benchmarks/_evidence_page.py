"""The page docs/evidence.md, written from the results of ./dev bench evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks import _evidence_rows as rows
from benchmarks._evidence_claims import judge_claims
from benchmarks._evidence_files import LOGIT_FILES, NETWORKS, SMOOTHING_WORDS, SOURCES
from benchmarks._evidence_networks import EQUAL_ACCURACY
from benchmarks._evidence_policies import ALLOWED
from benchmarks._evidence_repairs import RULES, regret
from benchmarks._markdown import table
from calibrant.policy import CALIBRATORS_TRIED


def page(results: Mapping[str, Any]) -> str:
    """The whole page."""
    seconds = sum(part["seconds"] for name in ("published", "networks") for part in [results[name]])
    seconds += sum(part["seconds"] for name in ("repairs", "policies") for part in results.get(name, {}).values())
    environment = results["environment"]
    claims = [judgement.row() for judgement in judge_claims(results)]
    parts = [
        TOP.format(
            networks=len(NETWORKS),
            files=len(LOGIT_FILES),
            sources="\n".join(f"- `{folder}`: {words}." for folder, words in SOURCES.items()),
            seed=results["seed"],
            minutes=seconds / 60,
            machine=f"{environment['cpu']}, {environment['cores']} cores",
            checked=len(rows.CHECKED_FILES),
            claims=table(["claim", "numbers", "verdict", "more"], claims),
        ),
        PUBLISHED.format(
            rows=table(rows.PUBLISHED_HEAD, rows.published_rows(results)), nll=results["published"]["nll"]
        ),
        NETWORKS_PART.format(
            images=results["networks"]["images"],
            groups="\n".join(f"- {name}: {words}." for name, words in SMOOTHING_WORDS.items()),
            networks=table(rows.NETWORKS_HEAD, rows.network_rows(results)),
            replicates=results["networks"]["replicates"],
            close=EQUAL_ACCURACY * 100,
            pairs=table(rows.PAIRS_HEAD, rows.pair_rows(results, "with")),
            likely=table(rows.PAIRS_HEAD, rows.pair_rows(results, "likely")),
        ),
        REPAIRS_PART.format(
            splits=_split_words(results["repairs"]),
            **{
                metric: table(rows.repairs_head(metric.upper()), rows.repair_rows(results, metric))
                for metric in ("ece", "nll", "aurc")
            },
        ),
        CHOICE_PART.format(
            rules=table(RULES_HEAD, _rule_rows(results)), choices=table(rows.CHOICE_HEAD, rows.choice_rows(results))
        ),
    ]
    if results.get("policies"):
        parts.append(_policies_part(results))
    return "\n".join(parts)


def _policies_part(results: Mapping[str, Any]) -> str:
    return POLICIES_PART.format(
        splits=_split_words(results["policies"]),
        allowed=ALLOWED,
        five=table(rows.POLICIES_HEAD, rows.policy_rows(results, 0.05)),
        one=table(rows.POLICIES_HEAD, rows.policy_rows(results, 0.01)),
    )


def _split_words(part: Mapping[str, Any]) -> str:
    """How many splits were drawn, of which files."""
    counts = {file.title: part[file.file]["splits"] for file in rows.present_files(part)}
    most, least = max(counts.values()), min(counts.values())
    few = [title for title, count in counts.items() if count < most]
    if not few:
        return f"{most} random splits of each file"
    return f"{most} random splits of each file, and {least} where fits are slow: {'; '.join(few)}"


RULES_HEAD = [
    "rule", "half: mean regret", "odd files", "even files", "worst file", "sixth: mean regret", "odd files",
    "even files", "worst file",
]  # fmt: skip


def _rule_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """The mean regret of each rule and of each repair always, over all files and over every other one."""
    part = results["repairs"]
    files = rows.present_files(part)
    lines = []
    names = {"one standard error": "**one standard error** (in use)"}
    for rule in (*RULES, *CALIBRATORS_TRIED, "none"):
        line = [names.get(rule, rule if rule in RULES else f"always {rule}")]
        for size in ("half", "sixth"):
            values = np.array([regret(part[file.file]["sizes"][size], rule) for file in files])
            line += [f"{v:.4f}" for v in (values.mean(), values[::2].mean(), values[1::2].mean(), values.max())]
        lines.append(line)
    return lines


TOP = """\
<!-- Written by ./dev bench evidence --page; edit benchmarks/_evidence_page.py instead. -->

# Evidence on networks that others trained

Nobody on this project trained these models: {networks} networks on ImageNet, of which the confidence of the top class
is public, and {files} files of logits for images, text, speech and medicine. So nobody chose their training to make a
point here.
[Networks that we train](trained.md) are on a page of their own.

{sources}

```text
./dev bench evidence --data DIR            # all numbers, {minutes:.0f} minutes of CPU time, resumable
./dev bench evidence --page                # this page and its figures, from the results
./dev bench evidence --data DIR --check    # recomputes the networks and {checked} files, compares them with this page
```

DIR holds the four folders, with the arrays of each source as .npz files: `logits` and `labels`, or `predicted`,
`confidence` and `labels`. All random splits and replicates are drawn from seed {seed}, and the results that this page
is written from are in `benchmarks/evidence.json`. Run on: {machine}.

A claim holds when its 95% interval lies on the expected side of 0, does not hold when it lies on the other side, and is
within noise otherwise. A claim about several pairs or files gets "does not hold" as soon as one shows the opposite, and
"holds or within noise" where it holds for some and none shows the opposite.

{claims}"""

PUBLISHED = """\
## Published numbers

{rows}
The published NLL agrees once every probability is raised to at least 1e-15, as scikit-learn's log loss did at the
time. As they are, the logits have the NLL {nll:.6f}, which is what `calibrant audit` reports.
"""

NETWORKS_PART = """\
## Label smoothing on ImageNet

SC's claim: label smoothing makes a network worse at telling its right answers from its wrong ones. Each network saw the
same {images:,} validation images. What is known of their training:

{groups}

![Risk against coverage of four networks with 77-78% accuracy, and the excess AURC of all](evidence/networks.svg)

{networks}
Pairs whose accuracies differ by at most {close:.0f} point, the smoothed network less the other, with 95% intervals of
a paired bootstrap over images ({replicates} replicates). Lower ECE and AURC are better, higher coverage is better.

{pairs}
The same where smoothing is only likely:

{likely}
Limits. Architectures, data augmentation and training lengths differ between the networks of a pair, so no pair isolates
label smoothing; that every pair points the same way is what these files can show. The pairs share three networks
without smoothing, all from one training script. The two Inceptions share their architecture. A low ECE does not tell
either way: both Inceptions have the lowest of all, and answer 0.5% of the images or fewer at 1% risk, the networks
without smoothing 12% to 17%. Coverage at 1% risk rests on few errors and has wide intervals.
"""

REPAIRS_PART = """\
## Repairs

Each file is cut into random halves: one fits the repair, the other judges it. There are
{splits}.
Changes are means over the splits with the corrected resampled t-interval of Nadeau and Bengio, since the splits
overlap. **Bold** is where a repair hurts: its interval lies above 0. `auto` is what `calibrant fit` chooses by itself.

![ECE of every file as it is and with each repair](evidence/repairs.svg)

### ECE

{ece}
### NLL

{nll}
### AURC

Normalisation changes only the ranking, and falls back to the confidence where no norm beats it on the fitting half.
`auto` ranks by the score that it chose.

{aurc}
Where repairs hurt. Temperature keeps the answers, but not the order of the confidences of different samples: on
VGG19-BN, CIFAR-100, it repairs the ECE and spoils the ranking, so the automatic choice ranks by another
score. Vector scaling has two parameters per class: with 1000 classes and 2500 samples it overfits, and the
automatic choice does not try it there. Where the classes' scores are biased (GPT-2, speaker verification), temperature
can do little, and a bias per class changes the answers themselves. Of the files without label smoothing, normalisation
still ranks RepVGG-A2 better; the claim that it helps only after smoothing is too strong.

Limits. Halves of one test set are more alike than the data of tomorrow. One network here has smoothing for certain
(EfficientNet-Lite0). The speaker verification trials share speakers, so they are not independent.
"""

CHOICE_PART = """\
## The automatic choice

`calibrant fit` compares none, temperature, ensemble, isotonic and vector by cross-fitted NLL, simple ones first. Regret
is the NLL on the test half less that of the repair that is best on this file in hindsight. The former rule asked a
repair to beat the best so far with 95% confidence, shared by all candidates. On few samples hardly anything passes, and
a poor model stays as it is. Now it must win by more than one standard error, a textbook rule without a tuned number;
"least" takes the least NLL whatever its error. `fit` chooses on a part of what it is given; a sixth of a file shows
what that costs.

{rules}
Odd and even files are those of the table below by turns, to show that no half of them carries the result. The rule was
chosen after regrets of these files had been seen, so they are no independent test of it. The t-interval over files in
the table of claims is wide, because few files carry most of the regret.

{choices}"""

POLICIES_PART = """\
## Policies

For each split `calibrant fit` makes a policy on one half (calibrator, score and threshold) that promises, with 95%
confidence, that at most 5% (or 1%) of its answers are wrong; the other half judges it. There are
{splits}.

The other half is finite, so its observed risk is not the true one. "Above target" counts the splits whose observed risk
exceeds the target; a policy that aims close to the target is above it by chance alone now and then. "Beyond chance"
counts those where a one-sided binomial test rejects the target at 5%, with Wilson's interval. If the promise is kept,
at most {allowed:.2%} of splits do so: 5% broken promises, and 5% of the others by chance. Splits of one file overlap,
so these intervals are somewhat too narrow. A clairvoyant knows the test half and takes the largest coverage with the
same score whose risk there is at most the target.

![Broken promises and coverage at 5% risk](evidence/policies.svg)

### At most 5% wrong

{five}
### At most 1% wrong

{one}
Limits. The promise is an average over samples like those it was fitted on; nothing here shifts. Where a policy always
abstains, too few samples are left to promise anything: the file is too small or its model too poor. A policy that
abstains keeps its promise. Where it hardly ever answers, the few splits in which it does are a selection, and the risk
of their answers may be above the target (AdrenalMNIST, IEMOCAP): of all policies at most 5% may have too high a risk,
and of those that answer it may be more.
"""
