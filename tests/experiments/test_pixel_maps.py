"""Maps of one image. Oracles: NumPy over the logits of the predictions, and a hand-made set of ranks."""

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.experiments import image_maps, named_runs
from calibrant.experiments.pixel_maps import Normalisation
from calibrant.report import write_maps_page
from calibrant.training import predict_run
from tests.helpers.errors import facts


def test_maps_are_of_the_logits_of_the_run(mask_runs):
    maps = image_maps(mask_runs, "test-0-000003")
    whole = predict_run(mask_runs["ce"], whole_maps=True)
    assert isinstance(whole, Predictions)
    row = list(whole.ids).index("test-0-000003")
    logits, labels = np.asarray(whole.logits[row], np.float64), np.asarray(whole.labels[row])
    method = maps.methods[0]
    assert [one.name for one in maps.methods] == ["ce", "ls", "ls, alpha=0.2"]
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


def test_the_page_has_every_map_of_every_method(mask_runs, tmp_path):
    write_maps_page(tmp_path / "maps.html", image_maps(mask_runs, "000003"), created="today", command="calibrant maps")
    page = (tmp_path / "maps.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2 + 4 * 3
    assert page.count("Reliability diagram of") >= 2


def test_runs_are_named_and_wrong_ones_refused(mask_runs, tmp_path):
    assert named_runs([f"mine={mask_runs['ce']}", str(mask_runs["ls"])]) == {
        "mine": mask_runs["ce"],
        "ls": mask_runs["ls"],
    }
    twice = named_runs([str(mask_runs["ce"]), str(mask_runs["ce"])])
    assert list(twice) == ["ce", f"ce, {mask_runs['ce'].name}"]
    with pytest.raises(ValueError, match=facts(str(tmp_path))):
        named_runs([str(tmp_path)])
    with pytest.raises(ValueError, match=facts("nothing")):
        image_maps(mask_runs, "nothing")
    with pytest.raises(ValueError, match=facts("'0'")):
        image_maps(mask_runs, "0")


def test_normalisation_is_chosen_also_where_the_confidence_is_better():
    random = np.random.default_rng(0)
    logits = 3 * random.normal(size=(600, 4))
    labels = (logits + random.gumbel(size=logits.shape)).argmax(1)  # confidence is the truth: nothing ranks better
    norm = Normalisation.fit_best(logits, labels)
    assert not norm.is_better
    v = logits - logits.mean(1, keepdims=True) if norm.centre else logits
    expected = v.max(1) / (np.abs(v) ** norm.p).sum(1) ** (1 / norm.p)
    assert norm.score(logits) == pytest.approx(expected)
