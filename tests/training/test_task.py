"""Tasks of the training loop: what all of them must say."""

import pytest

from calibrant.training import Task
from calibrant.training.classification import Classification


def test_a_task_says_everything_that_the_loop_asks():
    asked = {"check", "evaluate", "loss", "model", "parts", "pipeline", "rehearse", "remember", "terms", "validate"}
    assert Task.__abstractmethods__ == asked
    with pytest.raises(TypeError):
        Task()


def test_samples_are_all_taken_unless_a_task_says_otherwise():
    sets = object()
    assert Classification().select(sets) is sets
