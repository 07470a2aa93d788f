"""Maps of one image. Oracles: NumPy over the logits of the predictions, and a hand-made set of ranks."""

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.experiments import image_maps, named_runs
from calibrant.experiments.pixel_maps import Normalisation
from calibrant.report import write_maps_page
from calibrant.training import predict_run
from tests.helpers.mask_runs import trained_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return trained_runs(tmp_path_factory.mktemp("runs"))


def test_maps_are_of_the_logits_of_the_run(runs):
    maps = image_maps(runs, "test-0-000003")
    whole = predict_run(runs["ce"], whole_maps=True)
    assert isinstance(whole, Predictions)
    row = list(whole.ids).index("test-0-000003")
    logits, labels = np.asarray(whole.logits[row], np.float64), np.asarray(whole.labels[row])
    method = maps.methods[0]
    assert (method.name, maps.methods[1].name) == ("ce", "ls")
    assert np.array_equal(method.predicted, logits.argmax(0))
    p = np.exp(logits - logits.max(0))
    confidence = (p / p.sum(0)).max(0)
    assert method.confidence == pytest.approx(confidence, abs=1e-6)
    counted = labels != 255
    wrong = counted & (logits.argmax(0) != labels)
    assert np.array_equal(method.wrong, wrong)
    assert maps.pixels == counted.sum()
    assert method.numbers["accuracy"] == pytest.approx(1 - wrong.sum() / counted.sum())
    y, x = np.argwhere(wrong)[len(np.argwhere(wrong)) // 2]
    surer = (method.confidence[counted] > method.confidence[y, x]).mean()
    assert method.rank[y, x] == pytest.approx(surer)
    assert method.numbers["wrong_rank"] == pytest.approx(method.rank[wrong].mean())
    iou = []
    for k in range(logits.shape[0]):
        either = ((labels == k) | (logits.argmax(0) == k)) & counted
        if either.any():
            iou.append(((labels == k) & (logits.argmax(0) == k)).sum() / either.sum())
    assert method.numbers["mean_iou"] == pytest.approx(np.mean(iou))
    counts = np.array(method.reliability["count"])
    bins = zip(method.reliability["confidence"], method.reliability["accuracy"], strict=True)
    gaps = [abs(c - a) for c, a in bins if c is not None]
    assert method.numbers["ece"] == pytest.approx(np.dot(counts[counts > 0], gaps) / counts.sum(), abs=1e-9)


def test_the_page_has_every_map_of_every_method(runs, tmp_path):
    write_maps_page(tmp_path / "maps.html", image_maps(runs, "000003"), created="today", command="calibrant maps")
    page = (tmp_path / "maps.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2 + 4 * 2
    assert page.count("Reliability diagram of") >= 2


def test_runs_are_named_and_wrong_ones_refused(runs, tmp_path):
    assert named_runs([f"mine={runs['ce']}", str(runs["ls"])]) == {"mine": runs["ce"], "ls": runs["ls"]}
    twice = named_runs([str(runs["ce"]), str(runs["ce"])])
    assert list(twice) == ["ce", f"ce, {runs['ce'].name}"]
    with pytest.raises(ValueError, match="neither the folder of a finished run nor"):
        named_runs([str(tmp_path)])
    with pytest.raises(ValueError, match=r"has no image 'nothing'"):
        image_maps(runs, "nothing")
    with pytest.raises(ValueError, match="images end with '0'"):
        image_maps(runs, "0")


def test_normalisation_is_chosen_also_where_the_confidence_is_better():
    random = np.random.default_rng(0)
    logits = 3 * random.normal(size=(600, 4))
    labels = (logits + random.gumbel(size=logits.shape)).argmax(1)  # confidence is the truth: nothing ranks better
    norm = Normalisation.fit_best(logits, labels)
    assert not norm.is_better
    v = logits - logits.mean(1, keepdims=True) if norm.centre else logits
    expected = v.max(1) / (np.abs(v) ** norm.p).sum(1) ** (1 / norm.p)
    assert norm.score(logits) == pytest.approx(expected)
