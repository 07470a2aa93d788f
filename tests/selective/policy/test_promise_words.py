"""What is said of a promise: the class, the number and what was seen, in words a reader can check."""

import pytest

from calibrant.selective.policy.promise_words import promise_title, promise_words, tally_words
from calibrant.selective.promise import LossTally, Promise
from calibrant.selective.thresholds.risk import ClassThreshold, abstaining
from tests.helpers.exports import at

NAMES = ("cat", "dog")
COSTS = ((0.0, 1.0), (5.0, 0.0))


@pytest.mark.parametrize(
    ("promise", "words", "title", "tally"),
    [
        (Promise(by_class=True), "at most 10% of the answers of every predicted class", "wrong answers of every", ""),
        (
            Promise("precision", shares=((1, 0.95),)),
            "at least 95% of the answers dog are right",
            "at least 95% of answers dog",
            "",
        ),
        (
            Promise("recall", shares=((0, 0.9),), tally=LossTally(50, 2)),
            "at least 90% of the samples of cat are answered as cat (seen: 96.00% of 50)",
            "at least 90% of cat are answered as cat",
            "18 of 20 samples of cat are answered as cat, 90.00%.",
        ),
        (
            Promise("cost", target=0.4, costs=COSTS, tally=LossTally(100, 6.0)),
            "an answer costs at most 0.4 on average (seen: 0.3000, of 100)",
            "an answer costs at most 0.4",
            "An answer costs 0.5000 on average.",
        ),
        (
            Promise("expected-risk", target=0.05, tally=LossTally(100, 4)),
            "On average over validation sets, at most 5% of all samples are answered wrongly (seen: 4.00% of 100)",
            "at most 5% of all samples",
            "10.00% of all samples are answered wrongly.",
        ),
    ],
)  # fmt: skip
def test_sentences(promise, words, title, tally):
    assert words in promise_words(promise, (), at(0.5), NAMES, None, 0.1, 0.95)
    assert title in promise_title(promise, NAMES, 0.1)
    assert tally_words(promise, LossTally(20, 2.0), NAMES) == tally
    assert tally_words(promise, LossTally(), NAMES) == ""


def test_a_class_that_is_never_answered_is_named():
    parts = (ClassThreshold(0, "north", at(0.5)), ClassThreshold(1, "north", abstaining("best", 0.1, 0.99)))
    text = promise_words(Promise(by_class=True), parts, at(0.5), NAMES, "site", 0.1, 0.95)
    assert "in every site" in text
    assert text.endswith("It never answers north: dog.")
