"""Frames of pandas, polars and Arrow against the same numbers in arrays."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from calibrant import Predictions, audit

RNG = np.random.default_rng(0)
P = RNG.dirichlet([1, 2, 3], 40)
NAMES = np.array(["cat", "dog", "fox"])
LABELS = RNG.integers(0, 3, 40)
COLUMNS = {"truth": NAMES[LABELS].tolist(), "p_dog": P[:, 1], "p_cat": P[:, 0], "p_fox": P[:, 2]}
COLUMNS["site"] = ["north", "south"] * 20
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_and_labels_are_matched_by_name(kind):
    mapped = {"labels": "truth", "probabilities": "p_*"}
    found = Predictions.from_frame(KINDS[kind](COLUMNS), columns=mapped, groups=["site"], split="val")
    order = [list(NAMES).index(name) for name in found.class_names]
    np.testing.assert_array_equal(found.probabilities, P[:, order])
    assert [found.class_names[k] for k in found.labels] == NAMES[LABELS].tolist()
    assert found.groups["site"].tolist() == ["north", "south"] * 20
    assert (found.split, found.files) == ("val", ())


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_names_need_no_mapping(kind):
    z = np.log(P).astype(np.float32)
    columns = {"label": LABELS, "logits_0": z[:, 0], "logits_1": z[:, 1], "logits_2": z[:, 2], "id": np.arange(40)}
    found = Predictions.from_frame(KINDS[kind](columns))
    np.testing.assert_array_equal(found.logits, z)
    np.testing.assert_array_equal(found.labels, LABELS)
    assert audit(found, replicates=20).metrics == audit(Predictions.from_logits(z, LABELS), replicates=20).metrics


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_arrays_of_frames_are_taken_as_they_are(kind):
    frame = KINDS[kind]({"a": P[:, 0], "b": P[:, 1], "c": P[:, 2], "y": LABELS})
    found = Predictions.from_probabilities(frame[["a", "b", "c"]], frame["y"])
    np.testing.assert_array_equal(found.probabilities, P)
    np.testing.assert_array_equal(found.labels, LABELS)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"a": [1.0]}, "frame must be a frame of pandas, polars or another library with eager frames, got dict"),
        (pl.DataFrame({"a": [1.0]}).lazy(), "frame must be a frame of pandas.* got LazyFrame"),
        (pd.DataFrame({"a": [1.0]}), "frame: no logits, probabilities or confidence"),
        (pd.DataFrame({"logits_0": [1.0], "logits_1": [2.0]}), "frame: .*labels"),
        (pd.DataFrame({"logits_0": [1.0, None], "logits_1": [2.0, 3.0], "labels": [0, 1]}), "frame: .*no value|finite"),
    ],
    ids=["dict", "lazy", "nothing", "labels", "empty value"],
)
def test_what_is_no_frame_of_predictions_is_refused(frame, words):
    with pytest.raises(ValueError, match=words):
        Predictions.from_frame(frame)
