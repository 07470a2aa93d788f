"""Bootstrap intervals: how often they cover a known truth, and limit cases."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import jaccard_score

from calibrant.metrics import (
    ClassOverlaps,
    Clusters,
    ConfidenceSketch,
    Judged,
    base_bins,
    describe,
    ece,
    ece_by_chance,
    intervals,
    mean_interval,
    paired_differences,
    reliability,
    top_label_blocks,
    wilson,
)
from calibrant.metrics.bootstrap.intervals import MOST_IMAGES
from tests.helpers.confidences import draw, sketch_of


def truth():
    c, correct = draw(np.random.default_rng(99), 2_000_000)
    summary = sketch_of(c, correct)
    return {name: float(value) for name, value in summary.metrics().items()}


def test_intervals_cover_the_truth_as_often_as_they_say():
    """Truth from 2 million samples; 120 data sets of 700. At 90%, three standard errors below are 82%."""
    known = truth()
    names = ("accuracy", "mean_confidence", "ece", "aece", "smooth_ece", "overconfidence", "underconfidence", "aurc",
             "e_aurc", "augrc", "risk_at_coverage_0.8", "risk_at_coverage_0.95", "coverage_at_risk_0.1")  # fmt: skip
    hits = dict.fromkeys(names, 0)
    trials = 120
    for seed in range(trials):
        found = intervals(sketch_of(*draw(np.random.default_rng(seed), 700)), level=0.9, replicates=200, seed=seed)
        for name in names:
            hits[name] += found[name].low <= known[name] <= found[name].high
    share = {name: count / trials for name, count in hits.items()}
    assert min(share.values()) > 0.82, share
    # Not by being wide: the mean's interval is as wide as theory says.
    c, correct = draw(np.random.default_rng(0), 700)
    found = intervals(sketch_of(c, correct), level=0.9)["accuracy"]
    expected = 2 * 1.645 * math.sqrt(correct.mean() * (1 - correct.mean()) / 700)
    assert found.high - found.low == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("size", [200, 500, 3000])
def test_a_gap_is_told_from_chance_and_calibration_is_not(size):
    """An interval that always reaches 0 always covers: it must not, where confidences are 20 points too high."""
    above = level = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        c = rng.uniform(0.5, 1, size)
        above += intervals(sketch_of(c, rng.random(size) < c - 0.2), replicates=100)["ece"].low > 0
        level += intervals(sketch_of(c, rng.random(size) < c), replicates=100)["ece"].low == 0
    assert above == 40
    assert level >= 33  # 95% of 40, and three standard errors


def test_what_chance_shows_is_what_chance_shows():
    rng = np.random.default_rng(8)
    c = rng.beta(5, 1.5, 400)
    drawn = [ece(c, rng.random(400) < c) for _ in range(400)]
    expected = ece_by_chance(reliability(c, rng.random(400) < c))
    assert expected.mean() == pytest.approx(np.mean(drawn), rel=0.06)
    assert np.quantile(expected, 0.95) == pytest.approx(np.quantile(drawn, 0.95), rel=0.08)


def test_moments_give_the_interval_of_a_mean():
    generator = torch.Generator().manual_seed(0)
    z, y = torch.randn(400, 5, generator=generator, dtype=torch.float64), torch.arange(400) % 5
    sketch = ConfidenceSketch()
    sketch.update(z, y)
    found = intervals(sketch.summary(), replicates=20)["nll"]
    each = torch.nn.functional.cross_entropy(z, y, reduction="none").numpy()
    assert found.value == pytest.approx(each.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.959964 * each.std() / 20)


def test_an_interval_contains_its_value_and_stays_in_range():
    rng = np.random.default_rng(1)
    for size in (1, 2, 5, 40):
        c, correct = draw(rng, size)
        for name, one in intervals(sketch_of(c, correct), replicates=50).items():
            if math.isnan(one.low):
                assert math.isnan(one.high), name
                assert math.isnan(one.value) or size < 10, name
            else:
                lowest, highest = describe(name).bounds
                assert lowest <= one.low <= one.value <= one.high <= highest, (name, one)


def test_the_same_seed_gives_the_same_intervals_and_another_one_others():
    summary = sketch_of(*draw(np.random.default_rng(2), 300))
    first, again, other = (intervals(summary, replicates=60, seed=seed)["ece"] for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_cost_and_answer_do_not_depend_on_how_the_counts_came_about():
    """A sketch merged with itself 2^10 times: intervals 2^5 times narrower."""
    c, correct = draw(np.random.default_rng(3), 500)
    sketch = ConfidenceSketch()
    sketch.update_confidence(torch.from_numpy(c), torch.from_numpy(correct))
    narrow = sketch
    for _ in range(10):
        narrow = narrow + narrow
    wide, tight = (intervals(one.summary())["accuracy"] for one in (sketch, narrow))
    assert (wide.high - wide.low) / (tight.high - tight.low) == pytest.approx(32, rel=0.15)


def test_intervals_of_a_sketch_by_another_score():
    z = 4 * torch.randn(600, 4, generator=torch.Generator().manual_seed(5))
    y = torch.arange(600) % 4
    sketch = ConfidenceSketch(score=lambda v: v.amax(1))
    sketch.update(z, y)
    found = intervals(sketch.summary(), replicates=100)
    assert set(found) == set(sketch.compute())
    assert found["ece"].low < found["ece"].value < found["ece"].high
    assert found["aurc"].low < found["aurc"].value < found["aurc"].high


@pytest.mark.parametrize(
    ("successes", "number", "expected"),
    [(8, 10, (0.4902, 0.9433)), (0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0))],  # Wilson 1927, worked by hand
)
def test_wilson(successes, number, expected):
    low, high = wilson(successes, number)
    assert (float(low), float(high)) == pytest.approx(expected, abs=1e-4)


def test_bad_arguments():
    c, correct = draw(np.random.default_rng(6), 20)
    with pytest.raises(ValueError, match="level"):
        intervals(sketch_of(c, correct), level=1.0)
    with pytest.raises(ValueError, match="replicates"):
        intervals(sketch_of(c, correct), replicates=3)
    with pytest.raises(ValueError, match="same samples"):
        paired_differences(Judged(c, correct), Judged(c[:-1], correct[:-1]))


@pytest.mark.parametrize("name", ["ece", "smooth_ece", "augrc", "risk_at_coverage_0.9"])
def test_one_metric_has_the_interval_that_it_has_among_all(name):
    c, correct = draw(np.random.default_rng(8), 700)
    alone = intervals(sketch_of(c, correct), replicates=60, only=(name,))
    assert alone == {name: intervals(sketch_of(c, correct), replicates=60)[name]}


def test_the_interval_of_a_mean_is_that_of_scipys_bootstrap():
    values = np.random.default_rng(0).exponential(size=237)
    interval = mean_interval(values, replicates=4000)
    expected = stats.bootstrap((values,), np.mean, n_resamples=4000, method="percentile", random_state=1)
    assert interval.value == pytest.approx(values.mean(), rel=1e-12)
    width = expected.confidence_interval.high - expected.confidence_interval.low
    assert interval.low == pytest.approx(expected.confidence_interval.low, abs=0.06 * width)
    assert interval.high == pytest.approx(expected.confidence_interval.high, abs=0.06 * width)


def test_the_level_of_a_mean_is_covered_as_often_as_it_says():
    rng = np.random.default_rng(3)
    intervals = [mean_interval(rng.uniform(size=80), level=0.8, replicates=200, seed=k) for k in range(300)]
    share = np.mean([interval.low <= 0.5 <= interval.high for interval in intervals])
    assert abs(share - 0.8) < 3 * math.sqrt(0.8 * 0.2 / 300) + 0.01


def test_the_mean_of_few_samples_has_no_interval():
    assert mean_interval(np.ones(3)).value == 1.0
    assert math.isnan(mean_interval(np.ones(3)).low)
    assert math.isnan(mean_interval(np.zeros(0)).value)


def test_the_mean_of_a_constant_has_an_interval_of_no_width():
    interval = mean_interval(np.full(30, 0.25))
    assert (interval.low, interval.value, interval.high) == pytest.approx((0.25, 0.25, 0.25))


def collect(images, side, seed=0):
    """Logits of two classes, where the share of right pixels differs between images."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.4, 1.0, images)
    right = rng.random((images, side, side)) < rate[:, None, None]
    z = np.stack([np.full(right.shape, 1.0), np.full(right.shape, 0.0)], axis=1)
    sketch, clusters = ConfidenceSketch(), Clusters()
    for top in top_label_blocks(z, (~right).astype(np.int64), kind="logits"):
        sketch.observe(top)
        clusters.add(top, base_bins(top.cells), 0)
    return sketch.summary(), clusters, right.mean((1, 2))


def test_the_interval_of_accuracy_has_the_spread_of_the_images():
    summary, clusters, shares = collect(100, 12)
    limits = clusters.intervals(summary, level=0.9, replicates=2000, seed=0)
    width = 2 * 1.645 * shares.std() / math.sqrt(len(shares))
    assert limits["accuracy"].value == pytest.approx(shares.mean())
    assert limits["accuracy"].high - limits["accuracy"].low == pytest.approx(width, rel=0.1)
    pixels = intervals(summary, level=0.9, replicates=200)["accuracy"]
    assert pixels.high - pixels.low < width / 3


def test_every_metric_has_an_interval_that_contains_it():
    summary, clusters, _ = collect(30, 5)
    limits = clusters.intervals(summary, level=0.95, replicates=100, seed=1)
    assert list(limits) == list(summary.metrics())
    for name, interval in limits.items():
        assert interval.value == summary.metrics()[name]
        assert interval.low <= interval.value <= interval.high, name


def test_nine_images_are_too_few():
    summary, clusters, _ = collect(9, 6)
    for interval in clusters.intervals(summary, level=0.95, replicates=100, seed=0).values():
        assert math.isnan(interval.low)
        assert math.isnan(interval.high)


def test_more_images_than_tables_share_them():
    summary, clusters, shares = collect(MOST_IMAGES + 44, 3)
    assert clusters.counts.sum() == 9 * (MOST_IMAGES + 44) == summary.samples
    limits = clusters.intervals(summary, level=0.9, replicates=500, seed=0)["accuracy"]
    width = 2 * 1.645 * shares.std() / math.sqrt(len(shares))
    assert limits.high - limits.low == pytest.approx(width, rel=0.25)


def masks(images, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, (images, 6, 5))
    logits = random.normal(size=(images, 5, 6, 5)) + 2 * (np.arange(5)[:, None, None] == labels[:, None])
    logits[:, 4] = -50  # a class that occurs nowhere
    labels[0, :2] = 255
    return logits, labels


def overlaps_of(logits, labels, batch):
    overlaps = ClassOverlaps(5)
    for start in range(0, len(logits), batch):
        rows = slice(start, start + batch)
        for block in top_label_blocks(logits[rows], labels[rows], kind="logits", ignore_index=255):
            overlaps.add(block, start)
    return overlaps


def expected(logits, labels):
    counted = labels != 255
    return jaccard_score(labels[counted], logits.argmax(1)[counted], labels=range(4), average=None)


def test_iou_of_every_class_is_scikit_learns():
    logits, labels = masks(7)
    overlaps = overlaps_of(logits, labels, 3)
    assert overlaps.by_class()[:4] == pytest.approx(expected(logits, labels))
    assert math.isnan(overlaps.by_class()[4])
    few = overlaps.mean_iou(level=0.95, replicates=50, seed=0)
    assert few.value == pytest.approx(expected(logits, labels).mean())
    assert math.isnan(few.low)  # of seven images


def test_the_interval_is_that_of_images_drawn_as_a_whole():
    logits, labels = masks(40, seed=1)
    interval = overlaps_of(logits, labels, 11).mean_iou(level=0.9, replicates=2000, seed=0)
    random = np.random.default_rng(5)
    drawn = []
    for _ in range(300):
        rows = random.integers(0, 40, 40)
        drawn.append(expected(logits[rows], labels[rows]).mean())
    low, high = np.quantile(drawn, (0.05, 0.95))
    assert interval.low == pytest.approx(low, abs=0.006)
    assert interval.high == pytest.approx(high, abs=0.006)
    assert high - low > 0.015  # which the tolerance does not hide


def test_images_beyond_the_table_share_rows():
    logits, labels = masks(300)
    assert overlaps_of(logits, labels, 64).by_class()[:4] == pytest.approx(expected(logits, labels))
