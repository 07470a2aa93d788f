import dataclasses

import numpy as np
import pytest

from calibrant.experiments.papers import als_maps
from calibrant.experiments.papers.als_maps import CONVOLUTIONS, draw_maps
from calibrant.predictions import Predictions


def test_maps_of_methods_over_seeds(bench, recipe, monkeypatch):
    monkeypatch.setattr(als_maps, "METHODS", ("hard", "als"))
    monkeypatch.setattr(als_maps, "_MEASURED", 25)
    studies, study = [], als_maps._study
    monkeypatch.setattr(als_maps, "_study", lambda *words: studies.append(study(*words)) or studies[-1])
    made = draw_maps(bench, recipe, "fig7", with_context=False)
    assert len(made.figures["fig7"].axes) == 4 * 3
    (hard, als) = made.tables["fig7-numbers"].rows
    assert (hard.method, als.method, hard.cells[0].runs) == ("Hard Label", "A. L. S.", 2)
    assert len(studies) == 2
    means = [study.shares["A. L. S."].mean() for study in studies]
    assert als.cells[0].mean == pytest.approx(np.mean(means))
    change = np.mean([study.shares["A. L. S."] - study.shares["Hard Label"] for study in studies])
    assert als.cells[1].mean <= change <= als.cells[1].high
    assert hard.cells[1] is None
    assert "over 25 test images" in made.tables["fig7-numbers"].note
    runs = bench.run(recipe, ("hard", "als"), changes=CONVOLUTIONS)
    facts = runs.folder("als", 0).recipe()
    assert facts.model.name == "small_cnn"
    assert Predictions.open(runs.folder("als", 0) / "test.npz").objectness is not None


def test_runs_without_a_common_seed_are_refused(bench, recipe, monkeypatch):
    monkeypatch.setattr(als_maps, "METHODS", ("hard",))
    runs = bench.run(recipe, ("hard",), changes=CONVOLUTIONS)
    apart = dataclasses.replace(runs, folders={"hard": {0: runs.folder("hard", 0)}, "als": {1: runs.folder("hard", 1)}})
    monkeypatch.setattr(type(bench), "run", lambda *_, **__: apart)
    with pytest.raises(ValueError, match="the runs have none in common"):
        draw_maps(bench, recipe, "fig6", with_context=True)
