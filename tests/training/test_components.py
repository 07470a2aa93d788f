"""Every kind of component that a recipe can name trains."""

import math

import pytest

from calibrant.training import load, train
from tests.helpers import digit_runs

RECIPE = digit_runs.RECIPE


@pytest.mark.parametrize(
    "changes",
    [
        ["optimiser.sam=0.05"],
        ["mixing={name='cutmix'}", "loss={name='ce'}"],
        ["loss={name='crl'}"],
        ["loss={name='mdca'}", "training.accumulate=4", "optimiser.clip=1.0"],
        ["optimiser.name=adamw", "optimiser.rate=0.003", "training.keep=best", "training.best_by=nll"],
        ["data.blanking={name='cutout', size=3}", "data.colouring={brightness=0.2}", "loss={name='ls'}"],
    ],
    ids=lambda c: c[0],
)
def test_every_kind_of_setting_trains(changes, recipe, tmp_path):
    result = train(load(recipe, [*changes, "training.epochs=1", "training.checkpoint_seconds=60"]), tmp_path / "run")
    assert result["sets"]["val"]["accuracy"] > 0.3
    assert math.isfinite(result["sets"]["test"]["nll"])
