"""`ConfidenceSketch`: one pass over the predictions, one small state that merges, every top-label metric from it.

A sketch on disk is a ``.safetensors`` file with a checksum of everything in it, checked from end to end when it is
read. Metadata: ``format``, ``version``, ``cells`` (how many there are), ``settings`` as JSON, and ``checksum``: SHA-256
over these four and over name, type (``torch.int64``, as PyTorch calls it), shape and bytes of every array, in the order
of their names. Files of earlier versions have none. Without weights counts are whole numbers and the file is one of
version 1; with weights they are sums, and version 2 has their squares, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from calibrant.base.arrays import Array, ArrayLike, Doubles, as_kind_of, as_numpy, precision_of
from calibrant.base.checks import HEAVIEST, Ints, check_choice, check_correct, check_within
from calibrant.base.files import parse_json, read_regular, written_aside
from calibrant.metrics.grid import BASE, CELLS, base_bins, cells_of, squash
from calibrant.metrics.kernel import (
    MOMENTS,
    SketchCounts,
    TopLabel,
    counted_rows,
    tally,
    tally_confidences,
    tally_rows,
    top_label_blocks,
    weight_of_block,
)
from calibrant.metrics.proper import check_labels
from calibrant.metrics.summary import Summary, has_weights

#: The state: names and lengths, all float64, which counts exactly up to 2^53. All of it adds up.
STATE: dict[str, int] = {
    "cells": 2 * CELLS,
    "base_counts": 2 * BASE,
    "base_sums": 2 * BASE,
    "base_squares": 2 * BASE,
    "moments": MOMENTS,
}

FORMAT = "calibrant.sketch"
PLAIN, WEIGHTED = "1", "2"  # versions of the file
#: What a file holds as it is, by version; of the cells, those that are filled.
_SUMS: dict[str, dict[str, tuple[int, type]]] = {
    PLAIN: {"base_counts": (2 * BASE, np.int64), "base_sums": (2 * BASE, np.float64), "moments": (5, np.float64)},
    WEIGHTED: {name: (STATE[name], np.float64) for name in STATE if name != "cells"},
}
LARGEST = 2**26  # bytes of a file: every cell filled takes less than half
MOST = 2**53  # samples: beyond, float64 does not count
_FACTS = ("format", "version", "cells", "settings", "checksum")


class ConfidenceSketch:
    """Everything top-label metrics need, in 15 MB, whatever the number of samples.

    Counts of right and wrong predictions over a million cells of the score (see `calibrant.metrics.grid`), sums
    of confidence over 300 bins, sums of NLL and Brier score and of their squares. All are float64, so nothing
    saturates. With weights they are sums of weights, which metrics scale to mean 1. All states add up: over batches,
    over sketches with ``+``, over processes (`calibrant.torchmetrics.ConfidenceSketch` is the same as a
    torchmetrics.Metric).

    ECE and MCE are exact for every number of bins that divides 300, as are accuracy, mean confidence, over- and
    underconfidence, NLL and Brier score. What the cells make approximate (AURC and its kin, equal-count bins) comes
    with a bound on the error: see `bounds` and `summary`.

    Args:
        score: what ranks the samples: None for the confidence (MSP), or a function of logits ``[n, C]`` that returns a
            score ``[n]``, higher for more confident. Calibration metrics are of the confidence in any case.
        ignore_index: label that counts nowhere.
        kind: what `update` takes: "logits" or "probabilities".

    Example:
        >>> from calibrant.metrics import ConfidenceSketch
        >>> sketch = ConfidenceSketch()
        >>> sketch.update([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], [0, 1, 1])
        >>> values = sketch.compute()
        >>> round(values["accuracy"], 4), round(values["ece"], 4), round(values["aurc"], 4)
        (0.6667, 0.4469, 0.6111)
        >>> (sketch + sketch).summary().samples
        6
    """

    cells: Doubles
    base_counts: Doubles
    base_sums: Doubles
    base_squares: Doubles
    moments: Doubles

    def __init__(
        self,
        *,
        score: Callable[[Any], Any] | None = None,
        ignore_index: int | None = None,
        kind: Literal["logits", "probabilities"] = "logits",
    ) -> None:
        check_choice("kind", kind, ("logits", "probabilities"))
        if score is not None and kind == "probabilities":
            raise ValueError("a score is a function of logits: it cannot be combined with kind='probabilities'")
        self.score, self.ignore_index, self.kind = score, ignore_index, kind
        for name, length in STATE.items():
            setattr(self, name, np.zeros(length))

    @property
    def by_confidence(self) -> bool:
        """Whether samples are ranked by their confidence."""
        return self.score is None

    def __repr__(self) -> str:
        samples = int(self.moments[5])
        return (
            f"ConfidenceSketch({samples:,} samples, kind={self.kind!r}{'' if self.by_confidence else ', by a score'})"
        )

    def update(self, logits: ArrayLike, labels: ArrayLike, *, weight: ArrayLike | None = None) -> None:
        """Add samples: logits (or probabilities) ``[N, C]`` or ``[N, C, ...]``, labels ``[N]`` or ``[N, ...]``.

        Weights, at least 0, are those of the rows ``[N]`` or of the labels; without them each sample counts as 1. Input
        that is refused leaves the sketch as it was.
        """
        values, y = _check(logits, labels, self.ignore_index, self.kind)
        weights = check_sample_weight(weight, y.shape)
        batch = SketchCounts()
        if self.score is None:
            precision = None if self.kind == "logits" else precision_of(logits)
            for z, row_labels, first, counted in counted_rows(values, y, self.ignore_index):
                of_block = weight_of_block(weights, first, len(row_labels), counted)
                for part in tally_rows(z, row_labels, self.kind, precision, of_block):
                    batch.add(part)
        else:
            options: dict[str, Any] = {"ignore_index": self.ignore_index, "kind": self.kind, "weight": weights}
            for top in top_label_blocks(values, y, **options):
                ranks = cells_of(*squash(self._ranks(as_kind_of(logits, top.take(values)))))
                losses = (top.nll, top.brier)
                batch.add(tally(top.cells, top.confidence, top.correct, *losses, weight=top.weight, ranks=ranks))
        self._add(batch)

    def _ranks(self, logits: Any) -> Doubles:
        """The scores of some samples; the function gets logits of the kind that `update` was given."""
        assert self.score is not None
        ranks, _ = as_numpy("a score", self.score(logits))
        if ranks.shape != logits.shape[:1] or ranks.dtype.kind not in "fiu" or not np.isfinite(ranks).all():
            requirement = f"finite and [{len(logits)}] for logits {list(logits.shape)}"
            raise ValueError(f"a score must be {requirement}, got {list(ranks.shape)}")
        return ranks.astype(np.float64, copy=False)

    def observe(self, top: TopLabel, bins: Ints | None = None) -> None:
        """Add samples whose statistics are known already; without their NLL and Brier score if they have none.

        ``bins`` are their base bins, where they are at hand.
        """
        losses = () if top.predicted is None else (top.nll, top.brier)
        batch = SketchCounts()
        batch.add(tally(top.cells, top.confidence, top.correct, *losses, weight=top.weight, bins=bins))
        self._add(batch)

    def _add(self, batch: SketchCounts) -> None:
        batch.add_to(*(getattr(self, name) for name in STATE))

    def update_confidence(self, confidence: ArrayLike, correct: ArrayLike, *, weight: ArrayLike | None = None) -> None:
        """Add samples of which only confidence and correctness are known, ``[N]`` each; NLL and Brier are lost."""
        (c, _), (correct, _) = as_numpy("confidence", confidence), as_numpy("correct", correct)
        if c.shape != correct.shape or c.dtype.kind != "f" or not c.size:
            raise ValueError(
                f"confidence must be floating point [N] with N >= 1 and correct [N], "
                f"got {c.dtype} {list(c.shape)} and {correct.dtype} {list(correct.shape)}"
            )
        if not self.by_confidence:
            raise ValueError("this sketch ranks by a score of the logits: update_confidence has none to give")
        weights = check_sample_weight(weight, c.shape)
        right, batch = check_correct(correct).reshape(-1), SketchCounts()
        of_rows = None if weights is None else np.broadcast_to(weights, c.shape).reshape(-1)
        for part in tally_confidences(c.reshape(-1), right, precision_of(confidence), of_rows):
            batch.add(part)
        self._add(batch)

    def summary(self) -> Summary:
        """The numbers behind the metrics, with methods for every metric at any setting."""
        return Summary.of(*(getattr(self, name) for name in STATE), by_confidence=self.by_confidence)

    def compute(self) -> dict[str, float]:
        """Every metric by its name, as Python floats."""
        return {name: float(value) for name, value in self.summary().metrics().items()}

    def bounds(self) -> dict[str, float]:
        """For every metric of `compute`, how far at most the value can lie from the exact definition's."""
        return {name: value.bound for name, value in self.summary().metrics().items()}

    def __add__(self, other: object) -> ConfidenceSketch:
        if not isinstance(other, ConfidenceSketch):
            return NotImplemented
        if (self.score, self.kind, self.ignore_index) != (other.score, other.kind, other.ignore_index):
            raise ValueError("sketches can be added only if they have the same score, kind and ignore_index")
        total = ConfidenceSketch(score=self.score, ignore_index=self.ignore_index, kind=self.kind)
        for name in STATE:
            setattr(total, name, getattr(self, name) + getattr(other, name))
        return total

    def __radd__(self, other: object) -> ConfidenceSketch:
        return self if other == 0 else NotImplemented  # sum() starts at 0

    def save(self, path: str | Path) -> None:
        """Write the state to a ``.safetensors`` file, aside first and then renamed; empty cells take no room."""
        if self.score is not None:
            raise ValueError("a sketch ranked by a function cannot be saved: a function does not go into a file")
        settings = {"kind": self.kind, "ignore_index": self.ignore_index}
        # Weights that are all the same but 1 change no metric, and yet what others are added to.
        is_plain = self.base_counts.sum() == self.moments[5] and not has_weights(
            self.base_counts, self.base_squares, self.moments
        )
        version = PLAIN if is_plain else WEIGHTED

        def stored(values: Doubles, dtype: type) -> Array:
            return (np.rint(values) if dtype is np.int64 else values).astype(dtype)

        filled = np.flatnonzero(self.cells)
        arrays = {name: stored(getattr(self, name)[:length], dtype) for name, (length, dtype) in _SUMS[version].items()}
        arrays |= {"filled": filled, "counts": stored(self.cells[filled], _SUMS[version]["base_counts"][1])}
        facts = {"format": FORMAT, "version": version, "cells": str(CELLS), "settings": json.dumps(settings)}
        facts["checksum"] = _checksum(arrays, facts)
        with written_aside(path) as aside:
            safetensors.numpy.save_file(arrays, aside, metadata=facts)

    @classmethod
    def load(cls, path: str | Path) -> ConfidenceSketch:
        """Read a sketch back; a file that is not one, or is damaged, is refused."""
        states, settings = _read_file(path)
        sketch = cls(**settings)
        for name, state in states.items():
            setattr(sketch, name, state)
        return sketch


def _check(logits: ArrayLike, labels: ArrayLike, ignore_index: int | None, kind: str) -> tuple[Array, Array]:
    """Logits or probabilities and labels as arrays that fit each other; values are looked at by the pass itself."""
    (values, _), (y, _) = as_numpy(kind, logits), as_numpy("labels", labels)
    if values.dtype.kind != "f" or values.ndim < 2 or not values.size or values.shape[1] < 2:
        requirement = "floating point [N, C] or [N, C, ...] with N >= 1 and C >= 2"
        raise ValueError(f"{kind} must be {requirement}, got {values.dtype} {list(values.shape)}")
    check_labels(y, (values.shape[0], *values.shape[2:]), values.shape[1], ignore_index)
    return values, y


def check_sample_weight(weight: ArrayLike | None, shape: tuple[int, ...]) -> Doubles | None:
    """Weights of rows or of labels of this shape, as float64."""
    if weight is None:
        return None
    values, _ = as_numpy("weight", weight)
    if values.shape not in (shape, shape[:1]) or values.dtype.kind not in "fiub":
        raise ValueError(f"weight must be numbers {list(shape[:1])}, got {values.dtype} {list(values.shape)}")
    weights = values.astype(np.float64)
    check_within("weight", weights, 0.0, HEAVIEST, f"finite, at least 0 and at most {HEAVIEST:g}")
    return weights


def _read_file(path: str | Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """States and settings of a sketch; whatever is wrong with the file is a ValueError that names it."""
    try:
        data = read_regular(path, LARGEST)
        facts = _read_facts(data)
        arrays = _read_arrays(data)
        states, settings = _read_states(arrays, facts["version"]), _read_settings(facts["settings"])
        if "checksum" in facts and facts["checksum"] != _checksum(arrays, facts):
            raise ValueError("it is damaged: its checksum is that of other contents")
        return states, settings
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (SafetensorError, ValueError, OSError) as error:
        text = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: cannot read a sketch: {text}") from None


def _read_arrays(data: bytes) -> dict[str, Array]:
    try:
        return safetensors.numpy.load(data)
    except KeyError as error:  # a type that NumPy does not have
        raise ValueError(f"its arrays are damaged: one is of type {error}") from None


def _checksum(arrays: dict[str, Array], facts: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps([facts[name] for name in _FACTS[:4]]).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, f"torch.{array.dtype}", list(array.shape)]).encode())
        digest.update(array.tobytes())
    return f"sha256:{digest.hexdigest()}"


def _read_facts(data: bytes) -> dict[str, str]:
    """The metadata, out of the header: eight bytes with its length, and then JSON."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("it is not a complete .safetensors file")
    header = parse_json(data[8 : 8 + length], "a header of .safetensors")
    facts = header.get("__metadata__") if isinstance(header, dict) else None
    facts = facts if isinstance(facts, dict) else {}
    if (facts.get("format"), facts.get("cells")) != (FORMAT, str(CELLS)) or facts.get("version") not in _SUMS:
        raise ValueError("it is not a sketch of this version")
    if not set(_FACTS[:4]) <= set(facts) <= set(_FACTS) or not all(isinstance(fact, str) for fact in facts.values()):
        raise ValueError(f"its metadata must be {', '.join(_FACTS)}, got {', '.join(map(str, facts))[:200]}")
    return facts


def _read_settings(text: str) -> dict[str, Any]:
    settings = parse_json(text, "settings")
    if not isinstance(settings, dict) or set(settings) != {"kind", "ignore_index"}:
        raise ValueError("its settings must be kind and ignore_index")
    kind, ignored = settings["kind"], settings["ignore_index"]
    if kind not in ("logits", "probabilities"):
        raise ValueError(f"its kind must be 'logits' or 'probabilities', got {str(kind)[:40]!r}")
    if ignored is not None and (type(ignored) is not int or not -(2**63) <= ignored < 2**63):
        raise ValueError(f"its ignore_index must be a whole number or null, got {str(ignored)[:40]}")
    return settings


def _read_states(arrays: dict[str, Array], version: str) -> dict[str, Doubles]:
    """The states of a sketch from the arrays of a file, which must be those of one set of samples."""
    lengths = _SUMS[version]
    if set(arrays) != {*lengths, "filled", "counts"}:
        raise ValueError(f"its arrays are damaged: got {', '.join(sorted(arrays))[:200]}")
    for name, (length, dtype) in lengths.items():
        if arrays[name].dtype != dtype or arrays[name].shape != (length,):
            raise ValueError(f"{name} is damaged")
    filled, counts = arrays["filled"], arrays["counts"]
    is_typed = filled.dtype == np.int64 and counts.dtype == arrays["base_counts"].dtype
    if not is_typed or filled.ndim != 1 or filled.shape != counts.shape:
        raise ValueError("its cells are damaged")
    inside = not len(filled) or (int(filled[0]) >= 0 and int(filled[-1]) < 2 * CELLS)
    if not inside or not (np.diff(filled) > 0).all() or not ((counts > 0) & (counts < np.inf)).all():
        raise ValueError("its cells are damaged")
    states: dict[str, Doubles] = {name: arrays[name].astype(np.float64) for name in lengths}
    if version == PLAIN:  # each sample has weight 1
        states["base_squares"] = states["base_counts"].copy()
        states["moments"] = np.concatenate([states["moments"], [counts.sum()], states["moments"][:4]])
    _check_sums(states, filled, counts)
    states["cells"] = np.zeros(2 * CELLS)
    states["cells"][filled] = counts
    return states


def _check_sums(states: dict[str, Doubles], filled: Array, counts: Array) -> None:
    """Raise unless cells, bins and sums agree with each other as those of one set of samples do."""
    total = float(counts.astype(np.float64).sum())
    side = 2 * base_bins(filled % CELLS) + (filled >= CELLS)
    bins = np.bincount(side, counts, minlength=2 * BASE)
    squares, sums, moments = states["base_squares"], states["base_sums"], states["moments"]
    if (
        not states["moments"][5] <= MOST
        or not np.allclose(bins, states["base_counts"], rtol=1e-9, atol=0)
        or not (squares >= 0).all()
    ):
        raise ValueError("its counts do not add up")
    if not ((sums >= 0) & (sums <= bins * (1 + 1e-6))).all():
        raise ValueError("its sums of confidences are damaged")
    # The NLL of a label with probability 0 is infinite; of the rest of these sums nothing is.
    proper = moments[[2, 3, 4, 5, 8, 9]]
    if not (moments >= 0).all() or not np.isfinite(proper).all() or float(moments[4]) > total * (1 + 1e-9):
        raise ValueError("its sums of NLL and Brier score are damaged")
