"""What is searched for each method: the values of the papers."""

import pytest

from calibrant.experiments.spaces import changes, draw, grid, methods, space, title_of
from calibrant.losses import describe
from tests.helpers.digit_studies import recipe


def test_spaces_are_those_of_the_papers():
    assert describe("lr").search["alpha"] == (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4)
    assert describe("ecp").search["strength"] == (0.1, 0.3, 0.5, 1, 2, 4, 8)
    assert describe("focal").search["gamma"] == (0.1, 0.2, 0.5, 1, 2, 3.5, 5)
    assert len(grid(describe("acls").search)) == 2 * 3 * 3
    for method in methods():
        for settings in grid(space(method, recipe())):
            changes(method, settings, recipe())


def test_a_method_changes_nothing_but_itself():
    given = recipe(loss={"name": "mbls", "margin": 4.0, "ignore_index": 9}, targets={"name": "adaptive"})
    assert changes("mbls", {"strength": 0.2}, given)["loss"] == {
        "name": "mbls", "margin": 4.0, "ignore_index": 9, "strength": 0.2,
    }  # fmt: skip
    assert changes("ls", {}, given) == {"targets.name": "hard", "loss": {"name": "ls", "ignore_index": 9}}
    assert changes("als+context", {}, given)["data.context_rate"] == 0.15
    with pytest.raises(ValueError, match="method 'ls' has no setting 'margin'"):
        changes("ls", {"margin": 6}, given)
    with pytest.raises(ValueError, match="unknown method 'lss'"):
        changes("lss", {}, given)
    assert {"als", "ce", "lr", "acls"} < set(methods())


def test_random_combinations_are_some_of_the_grid():
    some = draw(describe("acls").search, 5, seed=0)
    assert len(some) == 5
    assert all(one in grid(describe("acls").search) for one in some)
    assert some == draw(describe("acls").search, 5, seed=0) != draw(describe("acls").search, 5, seed=1)
    assert draw(describe("acls").search, 100, seed=0) == grid(describe("acls").search)


def test_every_method_has_a_title():
    titles = [title_of(method) for method in methods()]
    assert all(title[0].isupper() for title in titles)
    assert len(set(titles)) == len(methods())
