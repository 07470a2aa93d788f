"""Figures of SC: how label smoothing degrades selective classification, and how logit normalisation repairs it.

The paper prints no numbers for its figures. Curves are those of the first seed; the tables cover every seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from calibrant.experiments import tables
from calibrant.experiments.papers import sc_logits
from calibrant.experiments.papers.rankings import (
    CE,
    DEEPLAB,
    LS,
    READINGS,
    RESNET,
    SHOWN_RULE,
    VIT,
    NormalisedSet,
    judge,
    maps_of,
    normalise,
    rank_table,
    seeds_table,
    smoothing_runs,
    spread_words,
)
from calibrant.experiments.papers.registry import Output, PaperItem, item
from calibrant.experiments.papers.workbench import SMALL_NOTE, RunSet, Workbench
from calibrant.experiments.tables.cells import Column
from calibrant.losses import describe
from calibrant.metrics import aurc, coverage_at_risk
from calibrant.papers import errors_by_source, risk_coverage_by_method
from calibrant.posthoc import LogitNorm
from calibrant.report import MapRow, draw_errors_by_source, draw_maps, draw_risk_coverage_by_method, new_axes
from calibrant.training import load

_AURC, _COVERAGES = Column("aurc"), (Column("coverage_at_risk_0.05"), Column("coverage_at_risk_0.01"))
#: Share of the pooled set whose errors Fig. 8 and 11 count.
_ACCEPTED = 0.1


_RISK = "Risk against coverage by level of label smoothing"
_NO_CITYSCAPES = (
    "The paper's second panel, DeepLabV3+ on Cityscapes, is not drawn: it belongs to the segmentation figures."
)


@item("sc.fig1")
@item("sc.fig4", notes=[_NO_CITYSCAPES])
@item("sc.fig15")
def risk_by_smoothing(bench: Workbench, item: PaperItem, notes: Sequence[str] = ()) -> Output:
    """Ranked by the MSP; of Fig. 4, the left half."""
    runs = smoothing_runs(bench, item.recipes[0], methods=[CE])
    judged = {runs.label(method): judge(runs, method, runs.seeds(method)[0]) for method in runs.folders}
    curves = risk_coverage_by_method(
        {label: part.msp for label, part in judged.items()}, {label: part.correct for label, part in judged.items()}
    )
    ceilings = {runs.label(method): _ceiling(runs, method) for method in runs.folders}
    marks = {
        label: float((judged[label].msp > ceiling).mean()) for label, ceiling in ceilings.items() if ceiling is not None
    }
    figure, (axis,) = new_axes((4.2, 3.6))
    draw_risk_coverage_by_method(axis, curves, marks=marks)
    columns = (Column("accuracy"), _AURC, *_COVERAGES)
    table = tables.summary(runs.results, columns, methods=list(runs.folders), reference=CE, title="Every seed")
    above = "; ".join(f"{share:.1%} with {label}" for label, share in marks.items())
    dots = f"Dots: the MSP falls below the largest target, (1 - alpha) + alpha/K. Predictions above it: {above}."
    return Output(
        tables={f"{item.stem}-numbers": table},
        figures={item.stem: figure},
        notes=(
            f"Risk is the error rate of the accepted predictions, ranked by the MSP.{_seed_words(runs)}",
            *([dots] if marks else []),
            _aurc_words(runs),
            *notes,
        ),
    )


def _ceiling(runs: RunSet, method: str) -> float | None:
    """The largest probability that label smoothing trains towards; None for other losses."""
    seed = runs.seeds(method)[0]
    loss = runs.folders[method][seed].recipe().loss
    if loss.name != "ls":
        return None
    settings = describe("ls").defaults() | loss.parameters
    alpha, classes = float(settings["alpha"]), runs.outputs(method, seed).logits.shape[1]
    return 1 - alpha + alpha / classes


def _seed_words(runs: RunSet) -> str:
    seeds = sorted({seed for method in runs.folders for seed in runs.folders[method]})
    return f" The curves show seed {seeds[0]}, the table seeds {', '.join(map(str, seeds))}." if len(seeds) > 1 else ""


def _aurc_words(runs: RunSet) -> str:
    """The AURC of every method, and in how many runs it is above that of cross-entropy with the same seed."""
    areas = {
        method: [aurc(part.msp, part.correct) for seed in runs.seeds(method) for part in [judge(runs, method, seed)]]
        for method in runs.folders
    }
    words = [f"AURC of {runs.label(CE)}: {spread_words(areas[CE], _AURC)}"]
    for method, values in areas.items():
        if method != CE:
            words.append(f"of {runs.label(method)}: {spread_words(values, _AURC)}")
            if runs.seeds(method) == runs.seeds(CE):
                words[-1] += f", {count_words(areas[CE], values, 'higher')}"
    return "; ".join(words) + "."


_POOLED = "Pooled with sketches: risk against coverage, and where the accepted errors come from"
#: Shifted test sets: the paper's, and the set that stands in for it in small.
_SHIFTED = {"sketch": "ImageNet-Sketch", "texture": "scenes with unseen colours and patterns"}


@item("sc.fig8")
@item("sc.fig11")
def pooled(bench: Workbench, item: PaperItem) -> Output:
    """The test set together with a shifted one."""
    check_shifted(bench, item.recipes[0])
    runs = smoothing_runs(bench, item.recipes[0], methods=[CE])
    shifted = shifted_name(runs)
    rows: dict[str, list[list[float]]] = {}
    sources_by_label, scores, correct = {}, {}, {}
    for method in runs.folders:
        label, numbers = runs.label(method), []
        for seed in runs.seeds(method):
            sets = [judge(runs, method, seed, part) for part in ("test", shifted)]
            msp, is_correct = (np.concatenate([getattr(part, field) for part in sets]) for field in ("msp", "correct"))
            origin = np.repeat([False, True], [len(part.msp) for part in sets])
            sources = errors_by_source(msp, is_correct, origin, _ACCEPTED)
            accepted = float(sources.accepted[0])
            numbers.append([aurc(msp, is_correct), sources.risk[0], sources.shifted_errors[0] / accepted])
            if label not in sources_by_label:
                sources_by_label[label], scores[label], correct[label] = sources, msp, is_correct
        rows[label] = [list(column) for column in zip(*numbers, strict=True)]
    figure, (left, right_axis) = new_axes((8.0, 3.6), 2)
    draw_risk_coverage_by_method(left, risk_coverage_by_method(scores, correct), title="pooled set")
    draw_errors_by_source(right_axis, sources_by_label, sources=("the test set", f"the set {shifted}"))
    risk = f"risk_at_coverage_{_ACCEPTED:g}"
    columns = (_AURC, Column(risk, title="Errors at 10% coverage"), Column(risk, title=f"Errors from {shifted}"))
    words = "; ".join(
        f"{label}: {spread_words(values[1], columns[1])} of the accepted predictions are errors, "
        f"and {spread_words(values[2], columns[2])} are errors from {shifted}"
        for label, values in rows.items()
    )
    return Output(
        tables={f"{item.stem}-numbers": seeds_table("Pooled set, every seed", columns, rows)},
        figures={item.stem: figure},
        notes=(
            f"The test set and {_SHIFTED[shifted]}, ranked together by the MSP.{_seed_words(runs)}",
            f"At 10% coverage, {words}.",
            *_against_ce_words(runs, rows),
        ),
    )


def check_shifted(bench: Workbench, recipe: str) -> None:
    """Check, before anything is trained, that the recipe's runs will have a shifted test set."""
    also = load(recipe).data.also.get("sketch")
    if not (bench.small or bench.runs or getattr(also, "path", None)):
        raise ValueError(
            f"the figure pools the test set with ImageNet-Sketch, a folder of its own: run calibrant compare {recipe} "
            "--set data.also.sketch.path=DIR and give its folder with --runs, or take --small"
        )


def shifted_name(runs: RunSet) -> str:
    """The name of the shifted test set of the runs."""
    folder = next(folder for seeds in runs.folders.values() for folder in seeds.values())
    for name in _SHIFTED:
        if (folder / f"{name}.npz").exists():
            return name
    raise ValueError(
        f"the figure pools the test set with a shifted one, and the runs have neither of {tuple(_SHIFTED)}"
    )


def _against_ce_words(runs: RunSet, rows: Mapping[str, Sequence[Sequence[float]]]) -> list[str]:
    before = rows[runs.label(CE)]
    words = [
        f"{label}: AURC {count_words(before[0], values[0], 'higher')}, errors at 10% coverage "
        f"{count_words(before[1], values[1], 'higher')}"
        for label, values in rows.items()
        if label != runs.label(CE) and len(values[0]) == len(before[0])
    ]
    return [f"Against cross-entropy with the same seed: {'; '.join(words)}."] if words else []


@item("sc.fig6", rows=("prediction", "rank"))
@item("sc.fig10", rows=("rank", "normalised_rank"))
def wrong_pixels(bench: Workbench, item: PaperItem, rows: tuple[MapRow, ...]) -> Output:
    """One scene by the network trained with cross-entropy and by the one with label smoothing."""
    runs = smoothing_runs(bench, DEEPLAB, methods=[CE, LS], masks=True)
    maps = maps_of(bench, DEEPLAB, runs, (CE, LS))
    table = rank_table(runs, (CE, LS))
    words = [
        f"The image is {maps.image}, {SHOWN_RULE}; the paper does not say which scene it shows. Red pixels are wrong "
        "and among the most confident of the image; pale ones are wrong and among the least confident.",
        *(f"{m.name}: on this image wrong pixels rank at {m.numbers['wrong_rank']:.1%} by confidence and at "
          f"{m.numbers['normalised_wrong_rank']:.1%} by normalised logits ({m.norm})." for m in maps.methods),
    ]  # fmt: skip
    if bench.small:
        words.append(SMALL_NOTE)
    return Output({f"{item.stem}-numbers": table}, {item.stem: draw_maps(maps, rows)}, tuple(words))


@item("sc.fig9")
def fig9(bench: Workbench, item: PaperItem) -> Output:
    """Risk against coverage before and after normalisation (left), and the largest logit of ResNet-50 (right)."""
    recipes = bench.recipes(item.recipes)
    outputs = {}
    if RESNET in recipes:
        outputs["ResNet-50"] = normalisation(bench, replace(item, name="sc.fig9-left"))
    if VIT in recipes:
        outputs["ViT-S/16"] = normalisation(bench, replace(item, name="sc.fig9-left-vit", recipes=(VIT,)))
    if RESNET in recipes:
        outputs["ResNet-50, largest logit"] = sc_logits.largest_logit(bench, replace(item, name="sc.fig9-right"))
    return Output(
        tables={name: table for output in outputs.values() for name, table in output.tables.items()},
        figures={name: figure for output in outputs.values() for name, figure in output.figures.items()},
        notes=tuple(f"{title}: {note}" for title, output in outputs.items() for note in output.notes),
    )


_NORMALISED = "Risk against coverage before and after logit normalisation"
_PIXELS = "The paper's curves are over pixels of Cityscapes; with --small they are over drawn scenes."


@item("sc.fig12", small_notes=[_PIXELS])
@item("sc.fig16")
def normalisation(bench: Workbench, item: PaperItem, small_notes: Sequence[str] = ()) -> Output:
    """Ranked by the MSP, and by normalised logits in both readings."""
    runs = smoothing_runs(bench, item.recipes[0], methods=[CE, LS])
    columns = (_AURC, *_COVERAGES)
    rows: dict[str, list[list[float]]] = {}
    scores, correct, families, words = {}, {}, {}, []
    for method in (CE, LS):
        sets = [normalise(runs, method, seed) for seed in runs.seeds(method)]
        rankings = {"MSP": [part.plain.msp for part in sets]}
        rankings |= {word: [part.scores[centre] for part in sets] for centre, word in READINGS.items()}
        for word, ranked in rankings.items():
            label = f"{runs.label(method)}, {word}"
            pairs = list(zip(ranked, (part.plain.correct for part in sets), strict=True))
            rows[label] = [
                [aurc(*pair) for pair in pairs],
                *([coverage_at_risk(*pair, risk) for pair in pairs] for risk in (0.05, 0.01)),
            ]
            scores[label], correct[label], families[label] = ranked[0], sets[0].plain.correct, method
        powers = "; ".join(
            f"{', '.join(str(part.norms[centre].p) for part in sets)} {word}" for centre, word in READINGS.items()
        )
        words += [
            _change_words(runs.label(method), rows),
            f"{runs.label(method)}: the validation data choose {winner_words([part.winner for part in sets])}. "
            f"Of the two readings, {reading_words(sets)}; p in the figure: {powers}.",
        ]
    figure, (axis,) = new_axes((4.6, 4.2))
    draw_risk_coverage_by_method(axis, risk_coverage_by_method(scores, correct), families=families)
    return Output(
        tables={f"{item.stem}-numbers": seeds_table("Before and after logit normalisation, every seed", columns, rows)},
        figures={item.stem: figure},
        notes=(
            "Ranked by the MSP, and by the largest logit divided by the p-norm, without centring the logits, as SC "
            f"prints it (Eq. 17), and with centring. p has the lowest AURC on validation data.{_seed_words(runs)}",
            *words,
            *(small_notes if bench.small else ()),
        ),
    )


def _change_words(label: str, rows: Mapping[str, Sequence[Sequence[float]]]) -> str:
    before = rows[f"{label}, MSP"][0]
    changes = [
        f"{spread_words(after, _AURC)} {word} ({count_words(before, after, 'lower')})"
        for word in READINGS.values()
        if (after := rows[f"{label}, {word}"][0])
    ]
    return f"{label}: test AURC {spread_words(before, _AURC)} by the MSP, {', '.join(changes)}."


def reading_words(sets: Sequence[NormalisedSet]) -> str:
    """Which reading of the normalisation ranks the validation data better, and in how many runs."""
    counts = {
        centre: sum(part.norms[centre].area < part.norms[not centre].area for part in sets) for centre in READINGS
    }
    if counts[False] == counts[True]:
        return "neither ranks the validation data better in more runs than the other"
    best = max(counts, key=lambda centre: counts[centre])
    return f"logits that are {READINGS[best]} rank the validation data better in {counts[best]} of {len(sets)} runs"


def winner_words(winners: Sequence[LogitNorm]) -> str:
    """Which ranking the validation data chose, and in how many runs."""
    names = Counter(
        "the MSP (no p ranks better)"
        if norm.p_ is None
        else f"the normalised largest logit, {READINGS[norm.centre]}, p = {norm.p_}"
        for norm in winners
    )
    return "; ".join(f"{name} in {count} of {len(winners)} runs" for name, count in names.most_common())


def count_words(before: Sequence[float], after: Sequence[float], word: str) -> str:
    """In how many runs a number is higher or lower afterwards: ``"lower in 2 of 3 runs"``."""
    sign = 1 if word == "higher" else -1
    count = sum(sign * (b - a) > 0 for a, b in zip(before, after, strict=True))
    return f"{word} in {count} of {len(before)} runs"
