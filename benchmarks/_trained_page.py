"""The page docs/trained.md, written from the runs of ./dev bench trained."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import numpy as np

from benchmarks._markdown import table
from benchmarks._trained_claims import NOT_RUN, VERDICTS, Judgement, judge
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

What the papers found, looked for again on real data with small networks, beside
[the evidence on networks that others trained](evidence.md). A study trains every method of a recipe with the same
seeds; methods with the same seed start from the same weights and see the same batches of the same samples.

```text
./dev bench trained --data DIR              # what is missing of every study; a stopped run goes on
./dev bench trained pacs --data DIR --again # one study, although its numbers are here
./dev bench trained --page                  # this page, from the numbers in benchmarks/trained
```

DIR holds fashion-mnist, cifar-10, cifar10h, tiny-imagenet, 20news and pacs. Runs have one thread each. Run on:
{machines}.

A claim is a difference of methods with the same seed. It holds when the 95% t-interval of its mean over seeds lies on
the expected side, does not hold when it lies on the other side, and is within noise otherwise. Below three seeds it
counts as not run; a claim that what was lost is regained does not apply where nothing was lost. Losses have the values
of their papers, or those that a search chose on held-out training data: of seed {search_seed}, which is not
reported, or of each seed where training and test data are drawn anew. Intervals are not corrected for the number of
claims: of a hundred effects of 0, some five get a verdict.

{counts}
The reasons, as far as they are known, are below each study's table.

{progress}
## Claims

Of the studies that have runs; the claims of the others are in their sections.

{claims}
"""

SECTION = """## {title}

`{recipe}`. {note}

{body}"""


def page(numbers: Mapping[str, Numbers], seeds: int | None = None) -> str:
    """The whole page; ``seeds`` are asked for instead of each study's own number."""
    results = {name: own.tested for name, own in numbers.items()}
    judgements = {name: judge(study.claims, results[name]) for name, study in STUDIES.items()}
    begun = [name for name in STUDIES if len(results[name])]
    verdicts = [(own.claim.paper, own.verdict) for several in judgements.values() for own in several]
    top = TOP.format(
        machines="; ".join(dict.fromkeys(machine for own in numbers.values() for machine in own.machines))
        or "none yet",
        search_seed=SEARCH_SEED,
        counts=table(["claims of", *VERDICTS, "in all"], _count_rows(verdicts)),
        progress=table(PROGRESS_HEAD, [_progress_row(s, results[s.name], seeds or s.seeds) for s in STUDIES.values()]),
        claims=table(CLAIMS_HEAD, [row for name in begun for row in _rows(judgements[name], name)]),
    )
    return "\n".join([top.rstrip() + "\n", *(_section(study, numbers[study.name]) for study in STUDIES.values())])


def _count_rows(verdicts: list[tuple[str, str]]) -> list[list[str]]:
    """How often each verdict was given, by paper and in all."""
    counts = []
    for paper in (*dict.fromkeys(paper for paper, _ in verdicts), "all"):
        words = [word for name, word in verdicts if paper in (name, "all")]
        counts.append([paper, *(str(words.count(word)) for word in VERDICTS), str(len(words))])
    return counts


PROGRESS_HEAD = ["study", "recipe", "methods", "seeds planned", "runs done", "CPU minutes of a run, about"]


def _progress_row(study: TrainedStudy, results: Results, seeds: int) -> list[str]:
    labels = list(study.plan(1).methods)
    finals = results.where(stage="final", posthoc="none", metric="accuracy", set="test")
    done = {(row.method, row.tuned_for, row.seed) for row in finals}
    planned = len(labels) * seeds * max(1, len(study.tune))
    state = f"{len(done)} of {planned}" if done else NOT_RUN
    name, recipe = f"[{study.name}](#{_anchor(study)})", f"`{study.recipe}`"
    return [name, recipe, str(len(labels)), str(seeds), state, f"{study.minutes:g}"]


def _anchor(study: TrainedStudy) -> str:
    """Of the section of a study, as Markdown makes it of the title."""
    return re.sub(r"[^a-z0-9 -]", "", study.load().title.lower()).replace(" ", "-")


CLAIMS_HEAD = ["study", "claim", "paper", "measured", "seeds", "verdict"]


def _rows(judgements: list[Judgement], study: str) -> list[list[str]]:
    return [[study, j.claim.words, j.claim.paper, j.numbers, str(len(j.values)), j.verdict] for j in judgements]


def _section(study: TrainedStudy, numbers: Numbers) -> str:
    if len(numbers.tested):
        body = _table(study, numbers.tested)
        if has_curves(study, numbers.tested):
            body += "\n" + FIGURE.format(file=figure_of(study), where=FIGURE_SETS[study.curves])
        if numbers.chance is not None:
            body += "\n" + CHANCE.format(reference=study.reference, chance=100 * numbers.chance)
        if len(numbers.trials):
            body += "\n" + SEARCH.format(trials=table(TRIALS_HEAD, _trial_rows(numbers.trials)))
    else:
        claims = "\n".join(f"- {claim.paper}: {claim.words}." for claim in study.claims)
        body = f"Not run yet. It is to judge:\n\n{claims}\n"
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
With so few test samples, a perfectly calibrated network with the confidences of `{reference}` would show an ECE of
{chance:.2f}% by chance: what lies near that cannot be told from 0.
"""

SEARCH = """\
The search, on held-out training data, means over its seeds:

{trials}"""

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
            searched = {key: value for key, value in json.loads(settings).items() if key != "loss"}
            words = ", ".join(f"{key} = {value}" for key, value in searched.items())
            count = str(len(values["ece"]))
            rows.append([method, words, count, f"{100 * accuracy:.2f}", f"{100 * ece:.2f}", f"{aurc:.4f}"])
    return rows


RECIPES_TOP = """<!-- Written by ./dev bench trained --page; edit benchmarks/_trained_page.py instead. -->

# The small recipes

Recipes for two cores that come with Calibrant, what each trains, and where its numbers are. "Not run" means that
there are no runs of the recipe as it is now. The numbers of a study with few seeds are shown, and its claims are not
judged.
Run them with `./dev bench trained --data DIR`, or one with `calibrant compare small/NAME --data DIR --seeds 3 -o OUT`.

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
            *_, state, _ = _progress_row(study, numbers[study.name].tested, study.seeds)
            where = state if state == NOT_RUN else f"[{state} runs]({PAGE_NAME}#{_anchor(study)})"
        epochs = f"{recipe.training.epochs:g}" if recipe.training.epochs else "by steps"
        facts = [recipe.title, f"{recipe.paper}, {recipe.table}", f"`{recipe.model.name}`", epochs]
        rows.append([f"`{name}`", *facts, str(len(recipe.methods)), where])
    return RECIPES_TOP.format(recipes=table(RECIPES_HEAD, rows))
