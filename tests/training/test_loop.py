"""The training loop: what a run leaves, resuming, logs, precisions; optimisers and schedules as torch has them."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from calibrant import Predictions
from calibrant.training import DivergedError, checkpoints, load, predict_run, train
from calibrant.training.classification import Classification
from calibrant.training.datasets import load_sets
from calibrant.training.distributed import make_fabric
from calibrant.training.loop import step
from calibrant.training.optimisers import OptimiserSettings, Schedule, climb_weights
from calibrant.training.recipe import check_recipe
from calibrant.training.run import prepare_run
from calibrant.training.run_folder import RunFolder
from tests.helpers import digit_runs, recipe_data
from tests.helpers.digit_runs import DIGITS, assert_same, folder_of_classes, one_thread, tensors
from tests.helpers.errors import facts
from tests.helpers.processes import finish, start

RECIPE = digit_runs.RECIPE


def train_and_kill(recipe, folder, event, step):
    """In a process of its own, which ends itself at an event of a step."""

    def listen(name, numbers):
        if name == event and numbers.get("step") == step:
            os.kill(os.getpid(), signal.SIGKILL)

    train(load(recipe), folder, event_log=listen)


def test_a_run_learns_and_leaves_everything(undisturbed):
    result = json.loads((undisturbed / "result.json").read_text())
    assert result["sets"]["test"]["accuracy"] > 0.8
    assert len(result["history"]) == 3
    assert {"recipe.json", "environment.json", "log.jsonl", "last.safetensors", "val.npz", "test.npz"} <= {
        p.name for p in undisturbed.iterdir()
    }
    again = predict_run(undisturbed)
    assert np.array_equal(again.logits, Predictions.open(undisturbed / "test.npz").logits)


@pytest.mark.slow
@pytest.mark.parametrize(("event", "step"), [("step", 5), ("epoch", 16)])
def test_killed_runs_end_as_if_nothing_had_happened(event, step, recipe, tmp_path, undisturbed):
    folder = tmp_path / "run"
    assert finish(start(train_and_kill, recipe, folder, event, step)) == -signal.SIGKILL
    assert not (folder / "result.json").exists()
    steps = resumed(recipe, folder)
    assert min(steps) > 1, "the run began anew"
    assert_same(folder, undisturbed)


def resumed(recipe, folder):
    """Go on with a run: the steps that it took."""
    steps = []
    with one_thread():
        train(load(recipe), folder, resume=True, event_log=lambda event, n: event == "step" and steps.append(n["step"]))
    return steps


def test_a_finished_run_is_not_computed_again(undisturbed, recipe):
    events = []
    train(load(recipe), undisturbed, resume=True, event_log=lambda event, _: events.append(event))
    assert events == ["finished already"]


def test_an_interrupted_run_ends_as_if_nothing_had_happened_and_logs_no_step_twice(recipe, tmp_path, undisturbed):
    def interrupt(event, numbers):
        if event == "step" and numbers["step"] == 12:
            os.kill(os.getpid(), signal.SIGINT)

    # What was logged after the checkpoint that the run goes on from is logged again, once.
    with pytest.raises(KeyboardInterrupt), one_thread():
        train(load(recipe), tmp_path / "run", event_log=interrupt)
    folder = RunFolder(tmp_path / "run")
    folder.log({"event": "epoch", "epoch": 9, "step": 999})
    assert min(resumed(recipe, tmp_path / "run")) > 1
    assert_same(tmp_path / "run", undisturbed)
    entries = folder.entries()
    assert [e["epoch"] for e in entries if e["event"] == "epoch"] == [1, 2, 3]
    steps = [e for e in entries if e["event"] == "step"]
    assert len({e["step"] for e in steps}) == len(steps) > 0
    for entry in steps:
        assert entry["loss"] == pytest.approx(entry["fidelity"] + entry["regulariser"], rel=1e-5)


def test_folders_are_not_mixed_up(undisturbed, recipe, tmp_path):
    with pytest.raises(ValueError, match=facts("--resume")):
        train(load(recipe), undisturbed)
    with pytest.raises(ValueError, match=facts(str(undisturbed))):
        train(load(recipe, ["seed=5"]), undisturbed, resume=True)


def test_what_failed_before_its_first_checkpoint_holds_no_folder(tmp_path):
    """Images of different sizes are met at the first batch; the recipe that is put right may have the same folder."""
    home = folder_of_classes(tmp_path / "pictures")
    data = {"layout": "image-folder", "path": str(home), "train": "all", "test_share": 0.2}
    plain = DIGITS | {"data": data, "training": {"batch_size": 8, "epochs": 1}}
    with pytest.raises(ValueError, match=facts("centre_crop")):
        train(check_recipe(plain, "pictures"), tmp_path / "run")
    right = plain | {"data": data | {"steps": [{"step": "centre_crop", "size": 8}],
                                     "train_steps": [{"step": "random_crop", "size": 8}]}}  # fmt: skip
    train(check_recipe(right, "pictures"), tmp_path / "run")
    with pytest.raises(ValueError, match=facts("--resume")):
        train(check_recipe(plain, "pictures"), tmp_path / "run")


def test_a_run_can_be_as_long_as_some_steps(tmp_path):
    schedule = {"name": "poly", "power": 1.0}
    recipe = check_recipe(DIGITS | {"training": {"batch_size": 128, "steps": 14}, "schedule": schedule}, "steps")
    rates = []
    train(recipe, tmp_path / "run", event_log=lambda event, n: rates.append(n["rate"]) if event == "step" else None)
    assert rates == pytest.approx([0.1 * (1 - k / 14) for k in range(14)])
    with pytest.raises(ValueError, match=facts("epochs", "steps")):
        check_recipe(DIGITS | {"training": {"steps": 14, "epochs": 2}}, "both")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"precision": "bf16-mixed"}, marks=pytest.mark.slow),
        {"precision": "64-true", "channels_last": True},
    ],
    ids=str,
)
def test_interrupted_runs_in_other_precisions_go_on_exactly(changes, tmp_path):
    length = {"batch_size": 128, "epochs": 2, "checkpoint_seconds": 1e-9}
    recipe = check_recipe(DIGITS | {"training": length | changes}, "precision")

    def stop(event, numbers):
        if event == "checkpoint" and numbers["step"] == 9:
            raise KeyboardInterrupt

    train(recipe, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "cut", event_log=stop)
    train(recipe, tmp_path / "cut", resume=True)
    one, two = (Predictions.open(tmp_path / name / "test.npz").logits for name in ("whole", "cut"))
    assert one.dtype == two.dtype
    assert np.array_equal(one, two)


@pytest.mark.parametrize(
    "loss",
    [
        {"name": "calsalm", "margin": 2.0, "rho_step": 1},
        {"name": "adafocal"},
        {"name": "deep_gamblers", "pretraining": 2},
        {"name": "sat", "start": 1},
        {"name": "sat", "start": 1, "selective": True, "momentum": 0.5},
    ],
    ids=lambda loss: loss["name"],
)
def test_interrupted_runs_of_losses_that_learn_go_on_exactly(loss, tmp_path):
    """Stopped in the second of three epochs; what the loss has learned is restored bit by bit."""
    length = {"batch_size": 128, "epochs": 3, "checkpoint_seconds": 1e-9}
    recipe = check_recipe(DIGITS | {"training": length, "loss": loss}, "learns")

    def stop(event, numbers):
        if event == "checkpoint" and numbers["step"] == 12:
            raise KeyboardInterrupt

    with one_thread():
        train(recipe, tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "cut", event_log=stop)
        learned = {name: value for name, value in tensors(tmp_path / "cut")[0].items() if name.startswith("loss/")}
        train(recipe, tmp_path / "cut", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "cut")
    last = tensors(tmp_path / "whole")[0]
    changed = [name for name, value in learned.items() if not torch.equal(last[name], value)]
    assert len(changed) == len(learned) > 0  # it went on learning, in everything that it keeps


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
def test_a_compiled_model_learns_the_same(tmp_path):
    short = {"batch_size": 128, "max_steps": 4}
    plain = train(check_recipe(DIGITS | {"training": short}, "plain"), tmp_path / "plain")
    compiled = train(check_recipe(DIGITS | {"training": short | {"compile": True}}, "compiled"), tmp_path / "compiled")
    assert compiled["sets"]["test"]["nll"] == pytest.approx(plain["sets"]["test"]["nll"], rel=1e-4)
    assert predict_run(tmp_path / "compiled").logits.shape == (450, 10)


def test_a_loss_that_is_no_number_stops_the_run(recipe, tmp_path):
    with pytest.raises(DivergedError, match=r"(nan|inf).*\d+.*digits/"):
        train(load(recipe, ["optimiser.rate=1e6", "optimiser.nesterov=false", "loss={name='ce'}"]), tmp_path / "run")
    kept, state = checkpoints.load(tmp_path / "run" / "last.safetensors")
    assert state["step"] >= 1
    assert all(bool(torch.isfinite(value).all()) for value in kept["model"].values())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["optimiser.sam=1e6", "data.std=[1e-16]"], ["nan"]),  # in the second pass of a step
        (["optimiser.rate=1e6", "data.std=[1e-34]", "schedule.warmup=0", "training.batch_size=800"], ["NaN", "1"]),
    ],
    ids=["second pass", "before validation"],
)
def test_divergence_is_found_wherever_it_happens(changes, words, recipe, tmp_path):
    with pytest.raises(DivergedError, match=facts(*words)):
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
    common = ["training.max_steps=3", "loss={name='ce'}", "training.precision=64-true"]
    train(load(recipe, common), tmp_path / "one")
    train(load(recipe, [*common, "training.accumulate=4"]), tmp_path / "four")
    (a, _), (b, _) = tensors(tmp_path / "one"), tensors(tmp_path / "four")
    assert max(float((a[k].double() - b[k].double()).abs().max()) for k in a if k.startswith("model/")) < 1e-10


@pytest.mark.parametrize(
    "changes",
    [
        ["optimiser.sam=0.05", "mixing={name='cutmix'}", "loss={name='ce'}"],
        ["loss={name='mdca'}", "training.accumulate=4", "optimiser.clip=1.0", "data.blanking={name='cutout', size=3}",
         "data.colouring={brightness=0.2}"],
        ["loss={name='crl'}", "optimiser={name='adamw', rate=0.003}", "training.keep=best", "training.best_by=nll"],
    ],
    ids=lambda c: c[0],
)  # fmt: skip
def test_every_kind_of_setting_trains(changes, recipe, tmp_path):
    result = train(load(recipe, [*changes, "training.epochs=1", "training.checkpoint_seconds=60"]), tmp_path / "run")
    assert result["sets"]["val"]["accuracy"] > 0.3
    assert math.isfinite(result["sets"]["test"]["nll"])


@pytest.mark.parametrize(
    ("broken", "name", "error"),
    [
        (checkpoints, "save_file", SafetensorError("I/O error: No space left on device (os error 28)")),
        (
            torch.optim.SGD,
            "step",
            RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        ),
    ],
    ids=["disk", "memory"],
)
def test_what_is_full_is_said(broken, name, error, recipe, tmp_path, monkeypatch, refused):
    def full(*arguments, **settings):
        raise error

    monkeypatch.setattr(broken, name, full)
    assert ("No space" if name == "save_file" else "memory") in refused("train", recipe, "-o", tmp_path / "run", "-q")


PROGRAM = """
import json, sys
from calibrant.training.fabric import Fabric
from lightning_fabric.utilities.imports import _TORCHMETRICS_GREATER_EQUAL_1_0_0 as is_recent
before = [name for name in ("torchmetrics", "torchvision", "transformers") if name in sys.modules]
from calibrant.torchmetrics import ConfidenceSketch
from torchmetrics import Metric
assert issubclass(ConfidenceSketch, Metric)
print(json.dumps([before, is_recent, Fabric.__name__]))
"""


@pytest.mark.slow
def test_fabric_knows_the_version_of_torchmetrics_and_does_not_import_it():
    """In a new process; and torchmetrics itself can be imported afterwards."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [[], True, "Fabric"]


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (Schedule(name="multistep", milestones=[3, 7], gamma=0.2),
         lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [3, 7], 0.2)),
        (Schedule(name="step", every=4, gamma=0.5), lambda o: torch.optim.lr_scheduler.StepLR(o, 4, 0.5)),
        (Schedule(name="cosine"), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)),
        (Schedule(name="poly", power=0.9), lambda o: torch.optim.lr_scheduler.PolynomialLR(o, 10, 0.9)),
    ],
    ids=["multistep", "step", "cosine", "poly"],
)  # fmt: skip
def test_schedules_are_those_of_torch(schedule, theirs):
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = theirs(optimiser)
    for epoch in range(10):
        assert schedule.factor(epoch, 10) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-12)
        optimiser.step()
        scheduler.step()


def test_warm_up_is_linear():
    schedule = Schedule(name="cosine", warmup=2, warmup_start=0.1)
    assert [schedule.factor(e, 12) for e in (0, 1, 2)] == pytest.approx([0.1, 0.55, 1.0])
    assert schedule.factor(7, 12) == pytest.approx(0.5)


def test_groups_have_their_own_rates():
    model = nn.ModuleDict({"backbone": nn.Linear(2, 3), "head": nn.Linear(3, 2)})
    settings = OptimiserSettings(rate=0.5, rates={"backbone": 0.1}, weight_decay=0.01, decay_matrices_only=True)
    groups = {
        (g["lr"], g["weight_decay"]): sum(p.numel() for p in g["params"]) for g in settings.build(model).param_groups
    }
    assert groups == {(0.05, 0.01): 6, (0.05, 0.0): 3, (0.5, 0.01): 6, (0.5, 0.0): 2}
    with pytest.raises(ValueError, match=facts("bakbone")):
        OptimiserSettings(rates={"bakbone": 0.1}).build(model)


def test_sharpness_aware_steps_by_hand():
    """On f(w) = w.A.w / 2 the gradient at w + rho g / |g| is A (w + rho A w / |A w|)."""
    A = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    w = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    start = w.detach().clone()
    (w @ A @ w / 2).backward()
    with climb_weights([w], rho=0.3):
        w.grad = None
        (w @ A @ w / 2).backward()
    g = A @ start
    assert torch.allclose(w.grad, A @ (start + 0.3 * g / g.norm()), atol=1e-12)
    assert torch.equal(w.detach(), start)


def test_the_rate_falls_with_every_step_as_in_keras():
    schedule = Schedule(name="multistep", milestones=[2], gamma=0.1, decay=1e-2)
    assert schedule.factor(1.0, 4, step=100) == pytest.approx(1 / (1 + 1e-2 * 100))
    assert schedule.factor(3.0, 4, step=300) == pytest.approx(0.1 / (1 + 1e-2 * 300))
