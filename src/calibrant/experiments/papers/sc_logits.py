"""SC's figures of pictures and logits: overconfident errors, the regularisation gradient, and the largest logit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from calibrant.base.arrays import Doubles
from calibrant.experiments.papers.rankings import (
    CE,
    LS,
    READINGS,
    RESNET,
    judge,
    normalise,
    seeds_table,
    smoothing_runs,
    spread_words,
)
from calibrant.experiments.papers.registry import Output, PaperItem, item
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.tables.cells import Column
from calibrant.losses import get
from calibrant.papers import max_logit_given_msp, normalised_given_max_logit, sorted_logits
from calibrant.posthoc import rank_shares
from calibrant.predictions import Predictions
from calibrant.report import (
    Cell,
    contact_sheet,
    draw_max_logit_given_msp,
    draw_normalised_given_max_logit,
    draw_rank_statistics,
    draw_regularisation,
    draw_regularisation_by_error,
    new_axes,
)
from calibrant.training import load_sets

_PICTURES = 8
#: Width of SC's adjacent windows of the MSP, for the mean gap between wrong and right predictions.
_WINDOW = 0.05


@item("sc.fig5")
def fig5(bench: Workbench) -> Output:
    """Pictures that both models get wrong, starting with those whose rank label smoothing lowers most."""
    runs = smoothing_runs(bench, RESNET, methods=[CE, LS])
    seed = runs.common_seeds((CE, LS))[0]
    parts = {method: judge(runs, method, seed) for method in (CE, LS)}
    ranks = {method: rank_shares(-part.msp) for method, part in parts.items()}
    errors = np.flatnonzero(~parts[CE].correct & ~parts[LS].correct)
    extremes = errors[np.argsort(ranks[LS][errors] - ranks[CE][errors], kind="stable")][:_PICTURES]
    if not len(extremes):
        raise ValueError("no picture is misclassified by both models: there is no overconfident error to show")
    predictions = Predictions.open(runs.folders[LS][seed] / "test.npz")
    labels = {method: runs.label(method) for method in (CE, LS)}
    cells = []
    for k, (pixels, lines) in zip(extremes, _pictures(bench, runs, seed, predictions, extremes), strict=True):
        for method in (LS, CE):
            predicted = int(parts[method].predicted[k])
            name = predicted if predictions.class_names is None else predictions.class_names[predicted]
            lines += f"\n{labels[method]}: {name}, {ranks[method][k]:.1%}"
        cells.append(Cell(pixels, lines))
    surer = float((ranks[LS][errors] < ranks[CE][errors]).mean())
    means = {m: ranks[m][errors].mean() for m in (CE, LS)}
    return Output(
        figures={"fig5": contact_sheet(cells, columns=4)},
        notes=(
            "Above each picture: its class, then the prediction of each model and the rank of its uncertainty among "
            f"the {len(predictions):,} test pictures, in percent; the most confident have the lowest. Seed {seed}.",
            f"The {len(extremes)} pictures are the extremes of {len(errors):,} that both models get wrong: "
            f"those with the largest difference of ranks. Of all these {surer:.1%} rank as surer with {labels[LS]}; "
            f"their mean rank is {means[LS]:.1%} with it and {means[CE]:.1%} with {labels[CE]}.",
        ),
    )


def _pictures(
    bench: Workbench, runs: RunSet, seed: int, predictions: Predictions, rows: np.ndarray
) -> list[tuple[np.ndarray, str]]:
    """The pixels and the class of some rows of the test predictions, found by their ids."""
    data = load_sets(runs.folders[LS][seed].recipe(), bench.data_path(RESNET)).test
    at = {name: index for index, name in enumerate(data.ids)}
    ids = [str(predictions.ids[row]) for row in rows] if predictions.ids is not None else []
    if not ids or any(name not in at for name in ids):
        raise ValueError(f"the pictures of the run's test set are not in {data.title}; give their folder with --data")
    return [
        (np.asarray(data.inputs[at[name]].convert("RGB")), data.classes[int(data.labels[at[name]])]) for name in ids
    ]


#: Softmax of the model and true distribution: sure and right, sure and wrong, unsure and wrong, unsure and right.
_CASES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "low U, P(error) as it says": ((0.86, 0.06, 0.04, 0.03, 0.01), (0.86, 0.06, 0.04, 0.03, 0.01)),
    "low U, overconfident": ((0.86, 0.06, 0.04, 0.03, 0.01), (0.25, 0.45, 0.15, 0.10, 0.05)),
    "high U, P(error) as it says": ((0.36, 0.24, 0.18, 0.13, 0.09), (0.36, 0.24, 0.18, 0.13, 0.09)),
    "high U, underconfident": ((0.36, 0.24, 0.18, 0.13, 0.09), (0.90, 0.04, 0.03, 0.02, 0.01)),
}
_ALPHA = 0.2


@item("sc.fig7")
def fig7(bench: Workbench) -> Output:
    """Four cases of sure and unsure predictions, and the gradient on the largest logit (Eq. 16)."""
    figure, axes = new_axes((6.4, 5.0), 2, 2)
    on_top = {}
    for axis, (words, (softmax, truth)) in zip(axes, _CASES.items(), strict=True):
        p, q = np.array(softmax), np.array(truth)
        gradient = regularisation_gradient(np.log(p)[None], q[None], _ALPHA)[0]
        on_top[words] = (1 - q[0], gradient[0])
        draw_regularisation(axis, p, q, gradient, title=words)
    error = np.linspace(0, 1, 51)
    classes = len(next(iter(_CASES.values()))[0])
    lines = {f"alpha = {alpha:g}": (error, gradient_by_error(error, classes, alpha)) for alpha in (0.1, 0.2, 0.3)}
    beside, (axis,) = new_axes((3.4, 2.8))
    draw_regularisation_by_error(axis, lines, title=f"{classes} classes")
    pressed = "; ".join(f"{words} (P(error) {p_error:.0%}): {value:+.3f}" for words, (p_error, value) in on_top.items())
    return Output(
        figures={"fig7": figure, "fig7-eq16": beside},
        notes=(
            f"Label smoothing's gradient minus that of cross-entropy, by autograd of both losses (alpha = {_ALPHA:g}); "
            "arrows show how gradient descent moves each logit (Eq. 15 of the paper).",
            f"Gradient on the largest logit: {pressed}. A larger one lowers the logit more.",
        ),
    )


def regularisation_gradient(logits: Doubles, truth: Doubles, alpha: float) -> Doubles:
    """The gradient of label smoothing minus that of cross-entropy at each logit ``[N, K]``, by autograd (SC Eq. 15)."""
    z, q = torch.tensor(logits, dtype=torch.float64, requires_grad=True), torch.tensor(truth, dtype=torch.float64)
    difference = get("ls", alpha=alpha, reduction="sum")(z, q) - get("ce", reduction="sum")(z, q)
    (gradient,) = torch.autograd.grad(difference, z)
    return np.asarray(gradient.numpy())


def gradient_by_error(error: Doubles, classes: int, alpha: float) -> Doubles:
    """That gradient at the predicted class, where the other classes share the probability of an error."""
    truth = np.repeat(error[:, None] / (classes - 1), classes, axis=1)
    truth[:, 0] = 1 - error
    logits = np.zeros_like(truth)
    logits[:, 0] = 2.0  # the first class is predicted; the gradient does not depend on how surely
    return regularisation_gradient(logits, truth, alpha)[:, 0]


_LARGEST = "The largest logit given the MSP, right and wrong predictions"
_NO_PIXELS = "The paper's predictions are pixels of Cityscapes; with --small they are a classifier's on drawn scenes."


@item("sc.fig13")
@item("sc.fig14", small_notes=[_NO_PIXELS])
@item("sc.fig17")
def largest_logit(bench: Workbench, item: PaperItem, small_notes: Sequence[str] = ()) -> Output:
    """Of cross-entropy and of label smoothing, and the gap of wrong and right predictions."""
    runs = smoothing_runs(bench, item.recipes[0], methods=[CE, LS])
    figure, axes = new_axes((7.0, 3.2), 2)
    middles = np.arange(_WINDOW / 2, 1, _WINDOW)
    rows = {}
    for axis, method in zip(axes, (CE, LS), strict=True):
        sets = [judge(runs, method, seed) for seed in runs.seeds(method)]
        columns = [(part.msp, part.logits.max(1), part.correct) for part in sets]
        draw_max_logit_given_msp(axis, max_logit_given_msp(*columns[0]), title=runs.label(method))
        windows = [max_logit_given_msp(*column, points=middles) for column in columns]
        rows[runs.label(method)] = [[mean_gap(part.wrong.mean - part.right.mean) for part in windows]]
    column = Column("", title="Largest logit, wrong minus right", direction="none")
    words = "; ".join(f"{label}: {spread_words(values[0], column)}" for label, values in rows.items())
    return Output(
        tables={f"{item.stem}-numbers": seeds_table("At equal MSP, every seed", [column], rows)},
        figures={item.stem: figure},
        notes=(
            f"Mean and one standard deviation of the largest logit in windows of the MSP, {_WINDOW:g} wide, of seed "
            f"{runs.seeds(CE)[0]}. Windows with fewer than 10 predictions are left out.",
            f"Wrong minus right, averaged over adjacent windows that have both: {words}. Above 0, the largest logit "
            "is higher for errors, as SC reports for label smoothing.",
            *(small_notes if bench.small else ()),
        ),
    )


def mean_gap(gaps: Doubles) -> float:
    """The mean over the windows with a gap; NaN if there is none."""
    finite = gaps[np.isfinite(gaps)]
    return float(finite.mean()) if len(finite) else float("nan")


@item("sc.fig18")
def fig18(bench: Workbench) -> Output:
    """ResNet-50 with label smoothing on ImageNet."""
    runs = smoothing_runs(bench, RESNET, methods=[LS])
    seed = runs.seeds(LS)[0]
    statistics = sorted_logits(judge(runs, LS, seed).logits)
    figure, axes = new_axes((8.4, 2.8), 3)
    parts = {
        "$v$": statistics.plain,
        f"$v^{statistics.power}$": statistics.powered,
        "$\\exp v$": statistics.exponential,
    }
    for axis, (label, part) in zip(axes, parts.items(), strict=True):
        draw_rank_statistics(axis, part, label=label)
    shares = np.cumsum(statistics.exponential.mean) / statistics.exponential.mean.sum()
    classes, positive = len(shares), int((statistics.plain.mean > 0).sum())
    return Output(
        figures={"fig18": figure},
        notes=(
            f"Mean and one standard deviation over the test set, of {runs.label(LS)}, seed {seed}.",
            f"The largest {int(np.searchsorted(shares, 0.95)) + 1} of {classes} logits make up 95% of the mean sum of "
            f"exp v, the largest one {shares[0]:.1%}; the first {positive} ranks are above 0 on average.",
        ),
    )


@item("sc.fig19")
def fig19(bench: Workbench) -> Output:
    """ResNet-50 with label smoothing on ImageNet, in both readings of the normalisation."""
    runs = smoothing_runs(bench, RESNET, methods=[LS])
    sets = [normalise(runs, LS, seed) for seed in runs.seeds(LS)]
    figure, axes = new_axes((7.6, 3.0), 2)
    slopes: dict[str, dict[bool, list[float]]] = {}
    for axis, (centre, word) in zip(axes, READINGS.items(), strict=True):
        by_seed = [
            normalised_given_max_logit(part.plain.msp, part.plain.logits.max(1), part.scores[centre]) for part in sets
        ]
        draw_normalised_given_max_logit(axis, by_seed[0], title=f"{word}, p = {sets[0].norms[centre].p}")
        for bins in by_seed:
            for part in bins:
                slopes.setdefault(f"MSP {part.low:g} to {part.high:g}", {}).setdefault(centre, []).append(part.slope)
    rows = {words: [by_reading.get(centre, []) for centre in READINGS] for words, by_reading in sorted(slopes.items())}
    columns = [Column("", title=f"Slope, {word}", direction="none") for word in READINGS.values()]
    return Output(
        tables={"fig19-numbers": seeds_table("Slope over the largest logit in each bin, every seed", columns, rows)},
        figures={"fig19": figure},
        notes=(
            "Mean and one standard deviation of the largest logit over the p-norm, in windows of the largest logit 0.2 "
            "wide and within two standard deviations of its mean, for bins of the MSP. Left: logits that are not "
            f"centred, as SC prints it (Eq. 17); right: centred. {runs.label(LS)}, seed {runs.seeds(LS)[0]}.",
            f"The fitted line falls, so that a larger logit ranks as less confident, in {_falling_words(rows)}.",
        ),
    )


def _falling_words(rows: dict[str, list[list[float]]]) -> str:
    counts = []
    for k, word in enumerate(READINGS.values()):
        values = [slope for columns in rows.values() for slope in columns[k] if slope == slope]
        counts.append(f"{sum(slope < 0 for slope in values)} of {len(values)} bins of all runs ({word})")
    return " and in ".join(counts)
