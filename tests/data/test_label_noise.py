"""Wrong labels: how many, which, and what stays as it is. Oracles: counts by hand, and the uniform distribution."""

import numpy as np
import pytest

from calibrant.data import Boxes, Dataset, Rows, with_wrong_labels
from tests.helpers.errors import facts


def data(number=1200, classes=5):
    ids = tuple(f"sample/{k}" for k in range(number))
    names = tuple(f"class {k}" for k in range(classes))
    soft = np.eye(classes)[np.arange(number) % classes]
    return Dataset("tiny", "train", names, ids, np.arange(number) % classes, Rows(np.zeros((number, 2))), soft=soft)


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5004, 1.0])
@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_the_share_is_met_to_the_sample_and_every_wrong_label_is_wrong(rate, kind):
    clean = data()
    noisy = with_wrong_labels(clean, rate, kind=kind)
    assert (noisy.labels != clean.labels).sum() == round(rate * 1200)
    assert noisy.ids == clean.ids
    assert noisy.soft is None
    assert clean.labels.tolist() == (np.arange(1200) % 5).tolist()


def test_pairs_are_the_next_class_and_symmetric_noise_is_every_other_alike():
    clean = data()
    pair = with_wrong_labels(clean, 1.0, kind="pair")
    assert (pair.labels == (clean.labels + 1) % 5).all()
    step = (with_wrong_labels(clean, 1.0).labels - clean.labels) % 5
    counts = np.bincount(step, minlength=5)
    assert counts[0] == 0
    assert (abs(counts[1:] - 300) < 5 * np.sqrt(300 * 0.75)).all()  # five standard deviations


def test_the_draw_depends_on_the_ids_and_the_seed_alone():
    clean = data()
    noisy = with_wrong_labels(clean, 0.3, seed=4)
    order = np.random.default_rng(0).permutation(1200)
    assert (with_wrong_labels(clean.take(order), 0.3, seed=4).labels == noisy.labels[order]).all()
    assert (with_wrong_labels(clean, 0.3, seed=5).labels != noisy.labels).any()
    more = with_wrong_labels(clean, 0.6, seed=4)  # a higher rate adds to the wrong labels of a lower one
    wrong = noisy.labels != clean.labels
    assert (more.labels[wrong] == noisy.labels[wrong]).all()


def test_samples_without_a_class_stay_so():
    clean = data(10)
    some = clean.replace(labels=np.where(np.arange(10) < 4, -1, clean.labels))
    noisy = with_wrong_labels(some, 0.5)
    assert (noisy.labels[:4] == -1).all()
    assert (noisy.labels[4:] != some.labels[4:]).sum() == 3


def test_what_cannot_have_wrong_labels_is_said():
    clean = data(4)
    with pytest.raises(ValueError, match=facts("rate", "1.5")):
        with_wrong_labels(clean, 1.5)
    with pytest.raises(ValueError, match=facts("kind", "flip", "pair")):
        with_wrong_labels(clean, 0.5, kind="flip")
    with pytest.raises(ValueError, match=facts("tiny", "masks")):
        with_wrong_labels(clean.replace(masks=Rows(np.zeros((4, 2)))), 0.5)
    with pytest.raises(ValueError, match=facts("tiny", "boxes")):
        with_wrong_labels(clean.replace(boxes=Boxes.of([[[0, 0, 1, 1]]] * 4, [[0]] * 4)), 0.5)
    with pytest.raises(ValueError, match=facts("tiny", "2", "1")):
        with_wrong_labels(data(4, 1), 0.5)
