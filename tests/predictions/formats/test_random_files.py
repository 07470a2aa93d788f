"""Random predictions in every format, as written here and by other programs: the same values come back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant import Predictions
from tests.helpers.predictions import FORMATS, TEXT, assert_same, write_columns

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1, max_size=8).map(str.strip)
#: Texts that stay text in a table of text: not all whole numbers, none empty, and no spaces at their ends.
IDS = st.lists(TEXTS.filter(bool), min_size=5, max_size=5, unique=True)


@st.composite
def predictions(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, classes = 5, draw(st.integers(2, 4))
    dtype = draw(st.sampled_from(["f2", "f4", "f8"]))
    values = (10 ** draw(st.integers(-3, 3)) * rng.standard_normal((rows, classes))).astype(dtype)
    columns = {"ids": [f"-{name}" for name in draw(IDS)] if draw(st.booleans()) else rng.integers(-9, 9, rows)}
    columns["weight"] = rng.random(rows) if draw(st.booleans()) else None
    columns["groups"] = {"g": rng.integers(0, 3, rows)} if draw(st.booleans()) else None
    names = draw(st.sampled_from([None, ["cat", "dog", "fox", "a b"][:classes]]))
    labels = rng.integers(0, classes, rows)
    if draw(st.booleans()):
        return Predictions.from_logits(values, labels, class_names=names, **columns)
    wide = values.astype(np.float64)
    shares = np.exp(wide - wide.max(1, keepdims=True))
    shares = (shares / shares.sum(1, keepdims=True)).astype(dtype)
    return Predictions.from_probabilities(shares, labels, class_names=names, **columns)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
def test_random_predictions_come_back(suffix, tmp_path_factory):
    @settings(max_examples=25, deadline=None)
    @given(predictions())
    def check(p):
        path = tmp_path_factory.mktemp("random") / f"x_{p.holds}{suffix}"
        p.save(path)
        opened = Predictions.open(path)
        for read in (opened, opened.load()):
            assert_same(read, p, suffix not in TEXT)
            np.testing.assert_array_equal(read.weight, p.weight)
        assert_same(next(iter(opened.batches(2))), p.samples(slice(0, 2)), suffix not in TEXT)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [*FORMATS, ".tsv"])
def test_random_columns_of_other_programs_come_back(suffix, tmp_path_factory):
    """Oracle: the arrays that NumPy, Arrow, safetensors and json wrote."""

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from(["f4", "f8"]), st.sampled_from(["i1", "u2", "i8"]))
    def check(seed, rows, real, whole):
        rng = np.random.default_rng(seed)
        columns = {
            "confidence": rng.random(rows).astype(real),
            "predicted": rng.integers(0, 4, rows).astype(whole),
            "labels": rng.integers(0, 4, rows).astype(whole),
            "group.site": rng.integers(0, 3, rows).astype(whole),
        }
        p = Predictions.open(write_columns(tmp_path_factory.mktemp("random") / f"x{suffix}", columns))
        np.testing.assert_array_equal(p.confidence, columns["confidence"])
        np.testing.assert_array_equal(p.correct, columns["predicted"] == columns["labels"])
        np.testing.assert_array_equal(p.groups["site"], columns["group.site"])
        np.testing.assert_array_equal(p.predicted, columns["predicted"])

    check()
