"""The demonstration from training to page, in small, and what its document says."""

import json

import numpy as np
import pytest
import torch

from calibrant import Policy, Predictions
from calibrant.experiments import demo


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory):
    """A demonstration on few pictures, whose stages are kept."""
    folder, stages = tmp_path_factory.mktemp("demo"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_QUICK", {"epochs": 4, "train": 400, "validation": 1500, "test": 300})
        patch.setattr(demo, "RISK", 0.5)
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            result = demo.run_demo(folder, seed=3, quick=True, progress=lambda *stage: stages.append(stage))
            assert torch.get_num_threads() == 2, "the demonstration leaves the threads as they were"
        finally:
            torch.set_num_threads(threads)
        yield folder, result, stages


def test_the_story_is_that_of_the_files(small_demo):
    """Every number once more, from the predictions, the policy and NumPy."""
    folder, result, _ = small_demo
    test, policy = Predictions.open(folder / demo.TEST), Policy.load(folder / demo.POLICY)
    exps = np.exp(test.logits - test.logits.max(1, keepdims=True))
    right = test.logits.argmax(1) == test.labels
    accept = policy.decide(test.logits).accept
    story = result.document["story"]
    assert story["claims"] == pytest.approx((exps / exps.sum(1, keepdims=True)).max(1).mean(), abs=1e-6)
    assert story["right"] == pytest.approx(right.mean())
    assert story["answered"] == pytest.approx(accept.mean())
    assert story["wrong"] == pytest.approx((~right[accept]).mean())
    assert story["all_wrong"] == pytest.approx((~right).mean())
    assert story["exported"] == 1
    assert f"claims {story['claims']:.2%} and is right {story['right']:.2%}" in result.document["headline"]


def test_numbers_do_not_depend_on_the_number_of_cores(small_demo):
    folder, *_ = small_demo
    assert json.loads((folder / "run" / "environment.json").read_text())["threads"] == 1


def test_pictures_are_the_first_of_the_test_set(small_demo):
    folder, result, _ = small_demo
    test, policy = Predictions.open(folder / demo.TEST), Policy.load(folder / demo.POLICY)
    decisions = policy.decide(test.logits)
    for name, chosen in (("answered", decisions.accept), ("declined", ~decisions.accept)):
        first = np.flatnonzero(chosen)[: demo.PICTURES]
        pictures = result.document[name]
        assert [picture["truth"] for picture in pictures] == [test.class_names[k] for k in test.labels[first]]
        assert [picture["right"] for picture in pictures] == (decisions.labels == test.labels)[first].tolist()


def test_the_page_stands_alone(small_demo):
    folder, result, _ = small_demo
    page = result.page.read_text(encoding="utf-8")
    assert result.document["headline"] in page
    assert "calibrant demo --seed 3 --quick" in page
    assert all(command in page for command in demo.COMMANDS)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert all((folder / file).exists() for _, file in result.document["files"])


def test_progress_goes_from_nothing_to_all(small_demo):
    *_, stages = small_demo
    shares = [done for _, done, _ in stages]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, pytest.approx(10))
    assert {total for *_, total in stages} == {10}


def test_a_second_call_trains_nothing(small_demo, monkeypatch):
    folder, result, _ = small_demo
    weights = (folder / "run" / "model.safetensors").stat().st_mtime_ns
    again = demo.run_demo(folder, seed=3, quick=True)
    assert again.document["story"] == result.document["story"]
    assert (folder / "run" / "model.safetensors").stat().st_mtime_ns == weights
    assert json.loads((folder / demo.POLICY).read_text())


def test_other_arguments_take_another_folder(small_demo):
    folder, *_ = small_demo
    with pytest.raises(ValueError, match="holds a demonstration made with --seed 3 --quick; name a new folder"):
        demo.run_demo(folder, seed=4, quick=True)
