"""The page docs/trained.md, written from the runs of ./dev bench trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks._speed_metrics import table
from benchmarks._trained_claims import NOT_RUN, Judgement, judge
from benchmarks._trained_findings import FINDINGS
from benchmarks._trained_studies import SEARCH_SEED, STUDIES, TrainedStudy
from calibrant.experiments import Results, tables
from calibrant.experiments.cells import parse_column

TOP = """<!-- Written by ./dev bench trained --page; edit benchmarks/_trained_page.py instead. -->

# Evidence on networks that we train

What the papers found, looked for again on real data with small networks, beside
[the evidence on networks that others trained](evidence.md). A study trains every method of a recipe with the same
seeds; methods with the same seed start from the same weights and see the same batches of the same samples.

```text
./dev bench trained --data DIR          # every study; runs on disk are not computed again, a stopped one goes on
./dev bench trained pacs --data DIR     # one study
./dev bench trained --page              # this page, from the runs on disk
```

DIR holds fashion-mnist, cifar-10, tiny-imagenet, 20news and pacs. Runs have one thread each. Run on: {machine}.

A claim is a difference of methods with the same seed. It holds when the 95% t-interval of its mean over seeds lies on
the expected side, does not hold when it lies on the other side, and is within noise otherwise. Below three seeds it
counts as not run. Settings were chosen on seed {search_seed} or by a search on held-out training data, never on what is
reported. The intervals are not corrected for the number of claims: of a hundred true ones that rest on chance alone, five
would miss their value.

{counts}

{progress}
## Claims

{claims}
"""

SECTION = """## {title}

`{recipe}`. {note}

{body}"""


def page(results: Mapping[str, Results], environment: Mapping[str, Any], seeds: int | None = None) -> str:
    """The whole page; ``seeds`` are asked for instead of each study's own number."""
    judgements = {name: judge(study.claims, results[name]) for name, study in STUDIES.items()}
    verdicts = [judgement.verdict for several in judgements.values() for judgement in several]
    counts = {word: verdicts.count(word) for word in ("holds", "does not hold", "within noise", NOT_RUN)}
    sentence = (
        f"Of {len(verdicts)} claims, {counts['holds']} hold, {counts['does not hold']} do not hold, "
        f"{counts['within noise']} are within noise, and {counts[NOT_RUN]} are not run."
    )
    top = TOP.format(
        machine=f"{environment['cpu']}, torch {environment['torch']}",
        search_seed=SEARCH_SEED,
        counts=sentence,
        progress=table(PROGRESS_HEAD, [_progress_row(s, results[s.name], seeds or s.seeds) for s in STUDIES.values()]),
        claims=table(CLAIMS_HEAD, [row for name in STUDIES for row in _claim_rows(STUDIES[name], judgements[name])]),
    )
    return "\n".join([top.rstrip() + "\n", *(_section(study, results[study.name]) for study in STUDIES.values())])


PROGRESS_HEAD = ["study", "recipe", "methods", "seeds planned", "runs done", "CPU minutes of a run"]


def _progress_row(study: TrainedStudy, results: Results, seeds: int) -> list[str]:
    labels = list(study.plan(1).methods)
    finals = results.where(stage="final", posthoc="none", metric="accuracy", set="test")
    done = {(row.method, row.tuned_for, row.seed) for row in finals}
    planned = len(labels) * seeds * max(1, len(study.tune))
    anchor = study.load().title.lower().replace(" ", "-").replace(":", "").replace(",", "")
    state = f"{len(done)} of {planned}" if done else NOT_RUN
    name, recipe = f"[{study.name}](#{anchor})", f"`{study.recipe}`"
    return [name, recipe, str(len(labels)), str(seeds), state, f"{study.minutes:g}"]


CLAIMS_HEAD = ["study", "claim", "paper", "measured", "seeds", "verdict"]


def _claim_rows(study: TrainedStudy, judgements: list[Judgement]) -> list[list[str]]:
    return [
        [study.name, j.claim.words, j.claim.paper, j.numbers, str(len(j.values)), j.verdict] for j in judgements
    ]


def _section(study: TrainedStudy, results: Results) -> str:
    if len(results):
        plan = study.plan(1)
        present = results.column("method")
        missing = [(label, "") for label in plan.methods if label not in present]
        columns = [parse_column(text) for text in study.columns]
        reference = "hard" if "hard" in plan.methods else "ce"
        shown = tables.summary(
            results, columns, missing=missing, reference=reference if reference in present else None
        )
        body = tables.markdown(shown).rstrip() + "\n"
    else:
        body = "Not run yet.\n"
    if study.name in FINDINGS:
        body += f"\n{FINDINGS[study.name].strip()}\n"
    return SECTION.format(title=study.load().title, recipe=study.recipe, note=study.note, body=body)
