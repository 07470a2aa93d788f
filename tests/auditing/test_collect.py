"""Models are compared on the same samples, and on nothing else: whatever form the predictions come in."""

import re

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.auditing.audit import explain_mismatch
from calibrant.auditing.collect import collect, collect_part
from calibrant.auditing.shards import Offsets, merge
from calibrant.predictions import Piece
from tests.helpers.errors import facts

N, C = 60, 3
RNG = np.random.default_rng(0)
Z = RNG.standard_normal((N, C))
Y = (Z + RNG.gumbel(size=Z.shape)).argmax(1)
OTHER = np.roll(Y, 1)
NAMES = ["cat", "dog", "owl"]
TURNED = [2, 0, 1]  # the columns in another order


def softmax(z):
    exps = np.exp(z - z.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True)


def reason(first, second):
    """Why two sets of predictions are not compared; None if they are."""
    return explain_mismatch(collect(first), collect(second))


FORMS = {
    "logits": lambda y, **more: Predictions.from_logits(Z, y, **more),
    "probabilities": lambda y, **more: Predictions.from_probabilities(softmax(Z), y, **more),
    "with ids": lambda y, **more: Predictions.from_logits(Z, y, ids=np.arange(N), **more),
    "with names": lambda y, **more: Predictions.from_logits(Z, y, class_names=NAMES, **more),
    "other order": lambda y, **more: Predictions.from_logits(
        Z[:, TURNED], np.argsort(TURNED)[y], class_names=[NAMES[k] for k in TURNED], **more
    ),
    "ignoring": lambda y, **more: Predictions.from_logits(Z, np.where(np.arange(N) < 5, 9, y), ignore_index=9, **more),
    "ignoring with names": lambda y, **more: Predictions.from_logits(
        Z, np.where(np.arange(N) < 5, 9, y), ignore_index=9, class_names=NAMES, **more
    ),
}


@pytest.mark.parametrize("second", FORMS)
@pytest.mark.parametrize("first", FORMS)
def test_labels_must_be_the_same(first, second):
    fits = ("ignoring" in first) == ("ignoring" in second)
    nameless = [form for form in (first, second) if "names" not in form and form != "other order"]
    if "other order" in (first, second) and nameless:
        fits = False  # by their numbers these labels differ, and nothing says how they are meant
    assert (reason(FORMS[first](Y), FORMS[second](Y)) is None) == fits
    assert reason(FORMS[first](Y), FORMS[second](OTHER)) is not None


def test_the_same_numbers_of_other_classes_are_other_labels():
    first = Predictions.from_logits(Z, Y, class_names=NAMES)
    second = Predictions.from_logits(Z, Y, class_names=[NAMES[k] for k in TURNED])
    assert "labels" in reason(first, second)


def test_other_samples_left_out_are_other_samples():
    """As many are left out by either, and so the same number stays: of other samples."""
    y = np.repeat([0, 1, 2], 20)
    first = Predictions.from_logits(Z, y, ignore_index=0)
    assert reason(first, Predictions.from_logits(Z, y, ignore_index=0)) is None
    assert re.search(facts("1", "0"), reason(first, Predictions.from_logits(Z, y, ignore_index=1)))
    # One that no label has leaves nothing out.
    none = Predictions.from_logits(Z, y)
    assert reason(none, Predictions.from_logits(Z, y, ignore_index=9)) is None


def test_pixels_are_not_compared_with_samples():
    z = RNG.standard_normal((2, C, 5, 6))
    y = RNG.integers(0, C, (2, 5, 6))
    images = Predictions.from_logits(z, y, kind="segmentation")
    rows = Predictions.from_logits(np.moveaxis(z, 1, -1).reshape(-1, C), y.reshape(-1))
    assert re.search(facts("segmentation", "classification"), reason(rows, images))


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("of", ["logits", "confidence"])
def test_confidences_have_no_labels_and_so_need_ids(of, ids):
    names = {"ids": np.arange(N)} if ids else {}
    known = Predictions.from_confidence(softmax(Z).max(1), Z.argmax(1) == Y, **names)
    first = known if of == "confidence" else Predictions.from_logits(Z, Y, **names)
    for pair in ((first, known), (known, first)):
        found = reason(*pair)
        assert (found is None) == ids
        assert ids or re.search(facts("labels", "ids"), found)
    if ids:
        turned = Predictions.from_confidence(softmax(Z).max(1), Z.argmax(1) == Y, ids=np.arange(N)[::-1])
        assert "ids" in reason(first, turned)


@pytest.mark.parametrize("form", FORMS)
def test_parts_put_together_have_the_checksums_of_the_whole(form):
    whole = FORMS[form](Y)
    expected, parts, samples = collect(whole), [], 0
    for start, stop in ((0, 7), (7, 31), (31, N)):
        piece = Piece(whole.samples(slice(start, stop)), start=start)
        parts += collect_part(piece, (), [Offsets(start, samples, N)])
        samples = parts[-1].collected.samples
    found = merge(parts).collected
    for name in ("label_crc", "named_label_crc", "id_crc", "ignored", "ignore_index", "rows", "samples"):
        assert getattr(found, name) == getattr(expected, name), name


def test_progress_is_told_in_rows_and_changes_nothing():
    rng = np.random.default_rng(0)
    data, told = Predictions.from_logits(rng.normal(size=(500, 3)), rng.integers(0, 3, 500)), []
    collected = collect(data, stage="counting", progress=lambda stage, done, total: told.append((stage, done, total)))
    assert told[0] == ("counting", 0, 500)
    assert told[-1] == ("counting", 500, 500)
    assert collected.summary().metrics() == collect(data).summary().metrics()
