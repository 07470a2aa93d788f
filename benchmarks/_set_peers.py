"""What runs inside the peers' environment: quantiles and sets of MAPIE, crepes and TorchCP, as lines of JSON.

    python -m benchmarks._set_peers FOLDER --level 0.9 --penalty 0.02 --free-ranks 2 --seed 0

The folder holds float64 probabilities of the samples of the quantile (``calibration.npy``) with ``labels.npy``, and of
new samples (``new.npy``). Each peer is called through its documented interface around a model that returns what it is
given. A line names the peer, the method and its quantile; the masks are written beside as ``PEER-METHOD.npy``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy as np
import numpy.typing as npt

from benchmarks._peers import supply_torchvision

Array = npt.NDArray[Any]


class Given(NamedTuple):
    """Probabilities and labels, and what is asked for."""

    calibration: Array
    labels: Array
    new: Array
    level: float
    penalty: float
    free_ranks: int
    seed: int


#: A quantile, in our sign where scores are -p, and a mask; None for what a peer does not tell.
Answer = tuple[Any, Array | None]


class _GivenModel:
    """A fitted scikit-learn classifier whose features are its probabilities."""

    def __init__(self, classes: int) -> None:
        self.classes_ = np.arange(classes)
        self.n_features_in_ = classes

    def fit(self, x: Array, y: Array) -> _GivenModel:
        return self

    def predict_proba(self, x: Array) -> Array:
        return np.asarray(x)

    def predict(self, x: Array) -> Array:
        return self.classes_[np.asarray(x).argmax(1)]

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(),
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"classes": len(self.classes_)}


def mapie(method: str, given: Given) -> Answer:
    """LAC with its sets; the quantile of APS, which MAPIE always randomises by a seed."""
    from mapie.classification import SplitConformalClassifier

    model = _GivenModel(given.new.shape[1])
    conformal = SplitConformalClassifier(
        model, confidence_level=given.level, conformity_score=method, prefit=True, random_state=given.seed
    )
    conformal.conformalize(given.calibration, given.labels)
    _, sets = conformal.predict_set(given.new)
    quantile = float(np.ravel(conformal._mapie_classifier.quantiles_)[0])
    if method == "aps":
        return quantile, None
    return quantile - 1, np.asarray(sets)[:, :, 0].astype(bool)


def crepes(method: str, given: Given) -> Answer:
    """Hinge scores, 1 - p; p-values without smoothing."""
    from crepes import WrapClassifier

    wrapped = WrapClassifier(_GivenModel(given.new.shape[1]))
    wrapped.calibrate(given.calibration, given.labels, class_cond=method == "class-conditional")
    sets = wrapped.predict_set(given.new, labels=False, confidence=given.level, smoothing=False)
    return None, np.asarray(sets).astype(bool)


def torchcp(method: str, given: Given) -> Answer:
    """Scores without randomisation, of probabilities as they are."""
    import torch

    graphs = ("nn", "loader", "utils", "utils.convert")
    _stand_in("torchsort", "transformers", "torch_geometric", *(f"torch_geometric.{part}" for part in graphs))
    from torchcp.classification.predictor import ClassConditionalPredictor, SplitPredictor
    from torchcp.classification.score import APS, LAC, RAPS

    scores: dict[str, Callable[[], Any]] = {
        "lac": lambda: LAC(score_type="identity"),
        "class-conditional": lambda: LAC(score_type="identity"),
        "aps": lambda: APS(score_type="identity", randomized=False),
        "raps": lambda: RAPS(score_type="identity", randomized=False, penalty=given.penalty, kreg=given.free_ranks),
    }
    kind = ClassConditionalPredictor if method == "class-conditional" else SplitPredictor
    predictor = kind(scores[method](), None, alpha=1 - given.level)
    predictor.calculate_threshold(torch.from_numpy(given.calibration), torch.from_numpy(given.labels))
    sets = predictor.predict_with_logits(torch.from_numpy(given.new))
    quantile = np.ravel(predictor.q_hat.numpy().astype(np.float64))
    quantile = quantile if method in ("aps", "raps") else quantile - 1
    return (quantile.tolist() if len(quantile) > 1 else float(quantile[0])), sets.numpy().astype(bool)


def _stand_in(*names: str) -> None:
    """Modules that a peer imports for what no set needs, a loss, graphs and text, where they are not installed."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = MagicMock()


PEERS: dict[str, tuple[Callable[[str, Given], Answer], tuple[str, ...]]] = {
    "MAPIE": (mapie, ("lac", "aps")),
    "crepes": (crepes, ("lac", "class-conditional")),
    "torchcp": (torchcp, ("lac", "aps", "raps", "class-conditional")),
}


def main() -> None:
    """Ask every peer for every method it has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name, kind in (("level", float), ("penalty", float), ("free-ranks", int), ("seed", int)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    supply_torchvision()
    arrays = (np.load(options.folder / f"{name}.npy") for name in ("calibration", "labels", "new"))
    given = Given(*arrays, options.level, options.penalty, options.free_ranks, options.seed)
    for peer, (ask, methods) in PEERS.items():
        for method in methods:
            record: dict[str, Any] = {"peer": peer, "method": method}
            try:
                record["version"] = importlib.metadata.version(peer)
                record["quantile"], mask = ask(method, given)
                if mask is not None:
                    np.save(options.folder / f"{peer}-{method}.npy", mask)
            except Exception as error:
                record["failure"] = f"{type(error).__name__}: {error}"[:200]
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
