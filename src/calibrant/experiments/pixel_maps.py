"""One image by the networks of several runs, pixel by pixel [MbLS, Fig. 3; SC, Figs. 6 and 10].

The logit normalisation of a run is fitted on its validation predictions, or else on its test predictions; never on the
shown image alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Doubles
from calibrant.base.checks import listing
from calibrant.base.files import json_value
from calibrant.data import Dataset
from calibrant.experiments.comparison import RUNS, STUDY
from calibrant.experiments.evaluation import flat
from calibrant.experiments.results import Results
from calibrant.metrics import aurc, ece, mean_iou, reliability, top_label
from calibrant.posthoc import LogitNorm, normalised_max_logit, rank_shares
from calibrant.predictions import Predictions
from calibrant.report import ImageMaps, MethodMaps
from calibrant.training import RESULT, RunFolder, predict_image


def split_name(argument: str) -> tuple[str, Path]:
    """``NAME=RUN`` as a name and a path; the name is empty where there is none, as in a path that exists.

    Example:
        >>> split_name("ALS=runs/als"), split_name("runs/als")[0]
        (('ALS', PosixPath('runs/als')), '')
    """
    name, equals, path = argument.partition("=")
    return (name, Path(path)) if equals and not Path(argument).exists() else ("", Path(argument))


def named_runs(arguments: Sequence[str], seed: int | None = None) -> dict[str, Path]:
    """Run folders by the names of their methods.

    Arguments are folders of finished runs, ``NAME=RUN``, or the folder of a comparison, which stands for one run of
    each of its methods, with this seed or its first.
    """
    runs: dict[str, Path] = {}
    for argument in arguments:
        label, path = split_name(argument)
        if (path / STUDY).exists() and not label:
            folders = _runs_of_comparison(path, seed)
        elif (path / RESULT).exists():
            folders = {label or RunFolder(path).recipe().loss.name: path}
        else:
            raise ValueError(f"{path} is neither the folder of a finished run nor that of a comparison")
        for name, folder in folders.items():
            runs[name if name not in runs else f"{name}, {folder.name}"] = folder
    return runs


def _runs_of_comparison(path: Path, seed: int | None) -> dict[str, Path]:
    rows = Results.load(path).where(stage="final", set="test", posthoc="none", metric="accuracy")
    seeds = sorted({row.seed for row in rows})
    if not seeds:
        raise ValueError(f"{path}: the comparison has no finished runs")
    if seed is not None and seed not in seeds:
        raise ValueError(f"{path}: no run has the seed {seed}; there are {listing([str(s) for s in seeds], 10)}")
    seed = seeds[0] if seed is None else seed
    return {row.method: path / RUNS / row.run for row in rows if row.seed == seed}


def image_maps(
    runs: Mapping[str, Path], image: str, *, data: str | None = None, split: str | None = None, trust_code: bool = False
) -> ImageMaps:
    """Maps of one image by the networks of runs, which must take it in the same size with the same classes.

    Runs are given by the names of their methods, the image by its id in the data set or a unique ending of it, data,
    split and trust as for `calibrant.training.predict_run`.
    """
    images = {
        name: predict_image(path, image, data=data, split=split, trust_code=trust_code) for name, path in runs.items()
    }
    first_name, first = next(iter(images.items()))
    for name, seen in images.items():
        if seen.dataset.classes != first.dataset.classes or not np.array_equal(seen.mask, first.mask):
            raise ValueError(f"{name} and {first_name} do not see {image!r} in the same size with the same classes")
    counted = _counted_pixels(np.asarray(first.predictions.labels)[0], first.dataset)
    if not counted.any():
        raise ValueError(f"{first.dataset.ids[0]}: no pixel of the image counts")
    truth = np.where(_counted_pixels(first.mask, first.dataset), first.mask, -1)
    methods = tuple(_method_maps(name, runs[name], part.predictions, counted) for name, part in images.items())
    return ImageMaps(
        image=first.dataset.ids[0],
        dataset=first.dataset.title,
        classes=tuple(first.dataset.classes),
        picture=first.picture,
        truth=truth,
        pixels=int(counted.sum()),
        methods=methods,
    )


def _counted_pixels(labels: npt.NDArray[np.int64], dataset: Dataset) -> npt.NDArray[np.bool_]:
    return labels != dataset.ignore_index if dataset.ignore_index is not None else np.ones(labels.shape, bool)


class Normalisation(NamedTuple):
    """Logit normalisation with the p that ranks a set best."""

    p: int
    centre: bool  # whether logits are centred first
    area: float  # the AURC on the set
    is_better: bool  # than the confidence, on the set; where not, LogitNorm would fall back

    @classmethod
    def fit(cls, logits: Any, labels: Any, centre: bool) -> Normalisation:
        """Choose p by AURC, on held-out data."""
        areas = LogitNorm(centre=centre).fit(logits, labels).aurc_
        area, p = min((area, p) for p, area in areas.items() if p is not None)
        return cls(p, centre, area, area < areas[None])

    @classmethod
    def fit_best(cls, logits: Any, labels: Any) -> Normalisation:
        """Choose the reading, too: of equal ones the one that centres logits."""
        return min((cls.fit(logits, labels, centre) for centre in (True, False)), key=lambda norm: norm.area)

    def score(self, logits: Any) -> Doubles:
        """The normalised largest logit of each row."""
        return np.asarray(normalised_max_logit(logits, self.p, centre=self.centre), np.float64)


def _choose_norm(path: Path) -> tuple[Normalisation, str]:
    """The normalisation of a run, and in words where it was chosen and whether it helps there."""
    name = "val" if (path / "val.npz").exists() else "test"
    part = flat(Predictions.open(path / f"{name}.npz"))
    norm = Normalisation.fit_best(part.logits, part.labels)
    words = f"p = {norm.p}{'' if norm.centre else ', logits not centred'}"
    data = "validation" if name == "val" else "test"
    return norm, f"{words}: {'better' if norm.is_better else 'no better'} than the confidence on the {data} data"


def _method_maps(name: str, path: Path, predictions: Predictions, counted: npt.NDArray[np.bool_]) -> MethodMaps:
    logits, labels = np.asarray(predictions.logits), np.asarray(predictions.labels)
    size = labels.shape[1:]
    rows = np.moveaxis(logits[0], 0, -1).reshape(-1, logits.shape[1])
    predicted = rows.argmax(1)
    confidence = top_label(rows, predicted)[0]
    norm, words = _choose_norm(path)
    normalised = norm.score(rows)
    here = counted.ravel()
    correct = (predicted == labels.ravel())[here]
    ranks, normalised_ranks = (_ranks(score, here) for score in (confidence, normalised))
    is_wrong = np.zeros(len(here), bool)
    is_wrong[here] = ~correct
    numbers = {
        "accuracy": float(correct.mean()),
        "mean_iou": mean_iou(logits, labels, classes=logits.shape[1], ignore_index=predictions.ignore_index),
        "ece": ece(confidence[here], correct),
        "aurc": aurc(confidence[here], correct),
        "normalised_aurc": aurc(normalised[here], correct),
        "wrong_rank": float(ranks[is_wrong].mean()) if is_wrong.any() else math.nan,
        "normalised_wrong_rank": float(normalised_ranks[is_wrong].mean()) if is_wrong.any() else math.nan,
    }
    return MethodMaps(
        name=name,
        run=str(path),
        predicted=predicted.reshape(size),
        confidence=confidence.reshape(size),
        wrong=is_wrong.reshape(size),
        rank=ranks.reshape(size),
        normalised_rank=normalised_ranks.reshape(size),
        norm=words,
        reliability=_series(confidence[here], correct),
        numbers=numbers,
    )


def _ranks(score: Doubles, counted: npt.NDArray[np.bool_]) -> Doubles:
    """The share of pixels that count of which the model is surer; 0 where a pixel does not count."""
    ranks = np.zeros(len(score))
    # 1 minus the share of pixels of which the model is at most as sure: 0 for the surest.
    ranks[counted] = 1 - rank_shares(score[counted])
    return ranks


def _series(confidence: Doubles, correct: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Fifteen bins of a reliability diagram; pixels of one image depend on each other, so there are no intervals."""
    bins = reliability(confidence, correct)
    series = {name: getattr(bins, name) for name in ("low", "high", "count", "confidence", "accuracy")}
    unknown = [None] * len(bins.count)
    return json_value(series) | {"accuracy_low": unknown, "accuracy_high": unknown}
