"""One step: losses that become NaN or infinite, accumulation, sharpness-aware passes."""

import pytest
import torch

from calibrant.cli import main
from calibrant.training import DivergedError, checkpoints, load, train
from calibrant.training.classification import Classification
from calibrant.training.datasets import load_sets
from calibrant.training.distributed import make_fabric
from calibrant.training.recipe import check_recipe
from calibrant.training.run import prepare_run
from calibrant.training.step import step
from tests.helpers import digit_runs, recipe_data
from tests.helpers.digit_runs import tensors

RECIPE = digit_runs.RECIPE


def test_a_loss_that_is_no_number_stops_the_run(recipe, tmp_path):
    with pytest.raises(
        DivergedError, match=r"the loss is (nan|inf) at step \d+ with learning rate .*; samples digits/"
    ):
        train(load(recipe, ["optimiser.rate=1e6", "optimiser.nesterov=false", "loss={name='ce'}"]), tmp_path / "run")
    kept, state = checkpoints.load(tmp_path / "run" / "last.safetensors")
    assert state["step"] >= 1
    assert all(bool(torch.isfinite(value).all()) for value in kept["model"].values())


def test_the_second_pass_of_sharpness_may_fail_too(recipe, tmp_path):
    with pytest.raises(DivergedError, match="the loss is nan at step"):
        train(load(recipe, ["optimiser.sam=1e6", "data.std=[1e-16]", "loss={name='ce'}"]), tmp_path / "run")


def test_divergence_at_the_end_of_an_epoch_is_found_before_validation(recipe, tmp_path):
    changes = ["optimiser.rate=1e6", "data.std=[1e-34]", "schedule.warmup=0", "training.batch_size=800"]
    with pytest.raises(DivergedError, match=r"became NaN or infinite after step 1"):
        train(load(recipe, [*changes, "loss={name='ce'}"]), tmp_path / "run")


def test_parts_of_a_batch_count_by_their_labelled_pixels(tmp_path):
    """One image has hundreds of labelled pixels, the other one: together or apart, the mean is over pixels."""
    home = recipe_data.written("camvid", tmp_path)
    plain = {
        "data": {"layout": "camvid", "steps": [{"step": "resize", "size": [32, 24]}]},
        "model": {"name": "deeplabv3plus_small"},
        "training": {"max_steps": 1, "batch_size": 2, "precision": "64-true"},
    }
    losses = {}
    for parts in (1, 2):
        recipe = check_recipe(plain | {"training": plain["training"] | {"accumulate": parts}}, "camvid")
        run = prepare_run(recipe, make_fabric(recipe, "cpu", 1, 1), load_sets(recipe, str(home)), Classification())
        run.model.eval()  # batch norm would see other batches
        batch = next(iter(run.loader))
        batch.masks[0] = run.loss.ignore_index
        batch.masks[0, 3, 4] = 1
        losses[parts] = step(run, batch)["loss"]
    assert losses[1] == pytest.approx(losses[2], rel=1e-9)


def test_accumulation_changes_nothing_but_rounding(recipe, tmp_path):
    common = ["training.epochs=1", "loss={name='ce'}", "training.precision=64-true"]
    train(load(recipe, common), tmp_path / "one")
    train(load(recipe, [*common, "training.accumulate=4"]), tmp_path / "four")
    (a, _), (b, _) = tensors(tmp_path / "one"), tensors(tmp_path / "four")
    assert max(float((a[k].double() - b[k].double()).abs().max()) for k in a if k.startswith("model/")) < 1e-10


def run(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code
