"""Training by recipe: schedules and SAM against torch and by hand, runs that are killed, two processes against one."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from calibrant import Predictions
from calibrant.cli import main
from calibrant.data import read, tokens
from calibrant.training import DivergedError, checkpoints, load, load_model, predict_run, train
from calibrant.training.datasets import load_sets
from calibrant.training.distributed import make_fabric
from calibrant.training.optimisers import OptimiserSettings, Schedule, climbed
from calibrant.training.recipe import check_recipe
from calibrant.training.run import prepare_run
from calibrant.training.run_folder import RunFolder
from calibrant.training.step import step
from tests import recipe_data

RECIPE = """
title = "digits"
[data]
layout = "digits"
val = "val"
train_steps = [{step = "random_crop", size = 8, padding = 1}]
[model]
name = "mlp"
input_size = [3, 8, 8]
hidden = [64]
[loss]
name = "acls"
margin = 6.0
[optimiser]
rate = 0.2
nesterov = true
[schedule]
name = "cosine"
warmup = 0.5
[training]
epochs = 3
batch_size = 128
checkpoint_seconds = 1e-6
"""


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "digits.toml"
    file.write_text(RECIPE)
    return file


def tensors(folder):
    parts, state = checkpoints.load(Path(folder) / "last.safetensors")
    return {f"{part}/{name}": value for part, members in parts.items() for name, value in members.items()}, state


def assert_same(one, two):
    (a, state_a), (b, state_b) = tensors(one), tensors(two)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert state_a == state_b
    for name in ("val", "test"):
        assert np.array_equal(
            Predictions.open(one / f"{name}.npz").logits, Predictions.open(two / f"{name}.npz").logits
        )


# --- recipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epoch=3", r"unknown key 'training.epoch' \(did you mean 'epochs'\?\)"),
        ("optimizer.rate=3", r"unknown key 'optimizer' \(did you mean 'optimiser'\?\)"),
        ("training.epochs=-1", "training.epochs must be greater than 0, got -1"),
        ("training.batch_size=many", "training.batch_size must be a whole number, got 'many'"),
        ("loss.name=aclz", "unknown loss 'aclz'"),
        ("loss.margins=3", "loss 'acls'"),
        (
            "mixing={name='cutmx'}",
            r"unknown mixing 'cutmx'; known are cutmix, ricap, mixup \(did you mean 'cutmix'\?\)",
        ),
        ("data.steps=[{step='rezise', size=3}]", r"unknown step 'rezise'.*did you mean 'resize'"),
        ("schedule.name=cosin", "schedule.name must be 'constant', .* or 'poly', got 'cosin'"),
        ("data.hold_out={fraction=0.1, count=3}", "takes one of fraction, count and per_class"),
        ("title", "name=value"),
    ],
)
def test_mistakes_in_recipes_are_one_sentence(recipe, override, message):
    with pytest.raises(ValueError, match=message) as failure:
        load(recipe, [override])
    assert "\n" not in str(failure.value)


def test_recipes_are_known_by_what_matters(recipe):
    same = [
        load(recipe),
        load(recipe, ["title=other"]),
        load(recipe, ["training.workers=2"]),
        load(recipe, ["data.path=x"]),
    ]
    assert len({r.key for r in same}) == 1
    assert load(recipe, ["loss.margin=7"]).key != same[0].key
    assert load(recipe, ["seed=1"]).key != same[0].key
    assert load(recipe, ['loss.name="ls"'], fresh_loss=True).build_loss().alpha == 0.05


# --- schedules and optimisers -----------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match="names 'bakbone', and no parameter"):
        OptimiserSettings(rates={"bakbone": 0.1}).build(model)


def test_sharpness_aware_steps_by_hand():
    """On f(w) = w.A.w / 2 the gradient at w + rho g / |g| is A (w + rho A w / |A w|)."""
    A = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    w = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    start = w.detach().clone()
    (w @ A @ w / 2).backward()
    with climbed([w], rho=0.3):
        w.grad = None
        (w @ A @ w / 2).backward()
    g = A @ start
    assert torch.allclose(w.grad, A @ (start + 0.3 * g / g.norm()), atol=1e-12)
    assert torch.equal(w.detach(), start)


# --- runs -------------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from calibrant.training import load, train
def listen(event, numbers):
    if event == {event!r} and numbers.get("step") == {step}: os.kill(os.getpid(), signal.SIGKILL)
import torch; torch.set_num_threads(1)
train(load(sys.argv[1]), sys.argv[2], resume=os.path.exists(sys.argv[2] + "/recipe.json"), event_log=listen)
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "digits.toml").write_text(RECIPE)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(load(folder / "digits.toml"), folder / "run")
    finally:
        torch.set_num_threads(threads)
    return folder / "run"


def test_a_run_learns_and_leaves_everything(undisturbed):
    result = json.loads((undisturbed / "result.json").read_text())
    assert result["sets"]["test"]["accuracy"] > 0.8
    assert len(result["history"]) == 3
    assert {"recipe.json", "environment.json", "log.jsonl", "last.safetensors", "val.npz", "test.npz"} <= {
        p.name for p in undisturbed.iterdir()
    }
    again = predict_run(undisturbed)
    assert np.array_equal(again.logits, Predictions.open(undisturbed / "test.npz").logits)


@pytest.mark.parametrize(("event", "step"), [("step", 5), ("checkpoint", 11), ("epoch", 16), ("step", 24)])
def test_killed_runs_end_as_if_nothing_had_happened(event, step, recipe, tmp_path, undisturbed):
    folder = tmp_path / "run"
    code = KILLED.format(event=event, step=step)
    killed = subprocess.run([sys.executable, "-c", code, str(recipe), str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "result.json").exists()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps = []
        train(
            load(recipe), folder, resume=True, event_log=lambda e, n: steps.append(n["step"]) if e == "step" else None
        )
    finally:
        torch.set_num_threads(threads)
    assert min(steps) > 1, "the run began anew"
    assert_same(folder, undisturbed)


def test_a_finished_run_is_not_computed_again(undisturbed, recipe):
    events = []
    train(load(recipe), undisturbed, resume=True, event_log=lambda event, _: events.append(event))
    assert events == ["finished already"]


def test_the_log_has_terms_and_no_step_twice(recipe, tmp_path):
    def interrupt(event, numbers):
        if event == "step" and numbers["step"] == 12:
            os.kill(os.getpid(), signal.SIGINT)

    # What was logged after the checkpoint that the run goes on from is logged again, once.
    with pytest.raises(KeyboardInterrupt):
        train(load(recipe), tmp_path / "run", event_log=interrupt)
    folder = RunFolder(tmp_path / "run")
    folder.log({"event": "epoch", "epoch": 9, "step": 999})
    train(load(recipe), tmp_path / "run", resume=True)
    entries = folder.entries()
    assert [e["epoch"] for e in entries if e["event"] == "epoch"] == [1, 2, 3]
    steps = [e for e in entries if e["event"] == "step"]
    assert len({e["step"] for e in steps}) == len(steps) > 0
    for entry in steps:
        assert entry["loss"] == pytest.approx(entry["fidelity"] + entry["regulariser"], rel=1e-5)


def test_tensorboard_says_what_to_install(recipe, tmp_path):
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match=r"pip install 'calibrant\[tensorboard\]'"):
            train(load(recipe, ["training.tensorboard=true"]), tmp_path / "run")
    else:
        train(load(recipe, ["training.tensorboard=true", "training.epochs=1"]), tmp_path / "run")
        assert any((tmp_path / "run" / "tensorboard").iterdir())


def test_word_vectors_start_the_embedding(tmp_path):
    """Words that the file has keep its numbers through training: vectors that are given are frozen."""
    data = recipe_data.written("newsgroups", tmp_path / "data")
    words = sorted({word for sample in read(data, "train") for word in tokens(sample.input)})
    lines = [f"{word} {i}.5 {-i}.25 0.125" for i, word in enumerate(words)]
    (tmp_path / "glove.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = check_recipe(
        {
            "data": {
                "layout": "newsgroups",
                "text": {"vocabulary": 50, "length": 30, "vectors": str(tmp_path / "glove.txt"), "dimensions": 3},
            },
            "model": {"name": "gpcn"},
            "optimiser": {"name": "adam", "rate": 0.01},
            "training": {"batch_size": 2, "max_steps": 2},
        },
        "here",
    )
    train(recipe, tmp_path / "run", data=str(data))
    model, shape, classes = load_model(tmp_path / "run")
    assert shape == [30]
    table = model.embedding.weight
    first = table[2].tolist()  # 0 and 1 are padding and unknown words
    assert [abs(first[0]) % 1, abs(first[1]) % 1, first[2]] == [0.5, 0.25, 0.125]
    assert len(classes) > 1


def test_folders_are_not_mixed_up(undisturbed, recipe, tmp_path):
    with pytest.raises(ValueError, match="holds a run already; --resume goes on"):
        train(load(recipe), undisturbed)
    with pytest.raises(ValueError, match="holds a run of another recipe"):
        train(load(recipe, ["seed=5"]), undisturbed, resume=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds no run, but x\.txt"):
        train(load(recipe), tmp_path / "notes")
    with RunFolder(tmp_path / "held").lock():
        held = f"RunFolder({str(tmp_path / 'held')!r}).lock()"
        code = f"from calibrant.training.run_folder import RunFolder\nwith {held}: pass"
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"is in use by process {os.getpid()}" in second.stderr


def test_a_loss_that_is_no_number_stops_the_run(recipe, tmp_path):
    with pytest.raises(
        DivergedError, match=r"the loss is (nan|inf) at step \d+ with learning rate .*; samples digits/"
    ):
        train(load(recipe, ["optimiser.rate=1e6", "optimiser.nesterov=false", "loss={name='ce'}"]), tmp_path / "run")
    kept, state = checkpoints.load(tmp_path / "run" / "last.safetensors")
    assert state["step"] >= 1
    assert all(bool(torch.isfinite(value).all()) for value in kept["model"].values())


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
        run = prepare_run(recipe, make_fabric(recipe, "cpu", 1, 1), load_sets(recipe, str(home)))
        run.model.eval()  # batch norm would see other batches
        batch = next(iter(run.loader))
        batch.masks[0] = run.loss.ignore_index
        batch.masks[0, 3, 4] = 1
        losses[parts] = step(run, batch)["loss"]
    assert losses[1] == pytest.approx(losses[2], rel=1e-9)


def test_a_full_disk_is_one_sentence(recipe, tmp_path, monkeypatch, capsys):
    def full(*arguments, **settings):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(SystemExit) as stop:
        main(["train", str(recipe), "-o", str(tmp_path / "run"), "-q"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert said.count("\n") == 1


def test_accumulation_changes_nothing_but_rounding(recipe, tmp_path):
    common = ["training.epochs=1", "loss={name='ce'}", "training.precision=64-true"]
    train(load(recipe, common), tmp_path / "one")
    train(load(recipe, [*common, "training.accumulate=4"]), tmp_path / "four")
    (a, _), (b, _) = tensors(tmp_path / "one"), tensors(tmp_path / "four")
    assert max(float((a[k].double() - b[k].double()).abs().max()) for k in a if k.startswith("model/")) < 1e-10


def test_two_processes_train_as_one(recipe, tmp_path):
    """Each takes half of every batch; gradients are averaged, CRL's history and the sketches are shared.

    With strength 0, since CRL's pairs are neighbours in a process's own batch: the history is recorded all the same.
    """
    changes = ["training.epochs=2", "loss={name='crl', strength=0.0}", "training.checkpoint_seconds=60"]
    words = [w for change in changes for w in ("--set", change)]
    command = [sys.executable, "-m", "calibrant", "train", str(recipe), "--accelerator", "cpu", "-q", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "-o", str(tmp_path / "one")], check=True, env=environment, cwd=tmp_path)
    subprocess.run([*command, "-o", str(tmp_path / "two"), "--devices", "2"], check=True, env=environment, cwd=tmp_path)
    (a, one), (b, two) = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    assert torch.equal(a["loss/history.counts"], b["loss/history.counts"])
    for name in a:
        if name.startswith("model/"):
            assert torch.allclose(a[name], b[name], atol=2e-5), name
    assert one["history"][-1]["val_accuracy"] == pytest.approx(two["history"][-1]["val_accuracy"], abs=0.01)


# --- commands ---------------------------------------------------------------------------------------------------------


def run(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def test_train_and_predict_from_the_command_line(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    assert (
        run("train", recipe, "-o", folder, "--loss", "ls", "--set", "loss.alpha=0.1", "--set", "training.epochs=1") == 0
    )
    assert "accuracy" in capsys.readouterr().out
    assert RunFolder(folder).recipe().loss.parameters == {"alpha": 0.1}
    assert run("predict", folder, "--split", "val", "-o", tmp_path / "val.npz") == 0
    assert np.array_equal(Predictions.open(tmp_path / "val.npz").logits, Predictions.open(folder / "val.npz").logits)
    assert run("train", recipe, "-o", folder) == 2
    assert "--resume goes on with it" in capsys.readouterr().err
    assert run("train", recipe, "--set", "training.epoch=1", "-o", tmp_path / "x") == 2
    assert "did you mean 'epochs'" in capsys.readouterr().err
    assert run("predict", tmp_path, "-o", tmp_path / "x.npz") == 2
    assert "no run lies here" in capsys.readouterr().err


def test_from_training_to_an_exported_policy(undisturbed, tmp_path, capsys):
    """train, audit, fit, export: the graph takes pixels from 0 to 1 and answers as the run's predictions do."""
    import onnxruntime

    policy, graph = tmp_path / "policy.json", tmp_path / "digits.onnx"
    val, test = undisturbed / "val.npz", undisturbed / "test.npz"
    assert run("audit", test, "--val", val, "-o", tmp_path / "r.html", "-q") == 0
    assert run("fit", val, "--target-risk", "0.2", "-o", policy, "-q") == 0
    assert run("export", "--run", undisturbed, "--policy", policy, "-o", graph, "-q") == 0
    images = np.stack([np.asarray(sample.input) for sample in read("digits", "test")])
    pixels = images.transpose(0, 3, 1, 2).astype(np.float32) / 255
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    values = session.run(None, {session.get_inputs()[0].name: pixels})
    answers = dict(zip([output.name for output in session.get_outputs()], values, strict=True))
    expected = Predictions.open(test).logits.argmax(1)
    assert np.array_equal(answers["label"], expected)
    assert 0 < answers["accept"].mean() <= 1
    capsys.readouterr()
    assert run("export", "--run", tmp_path, "--policy", policy, "-o", graph) == 2
    assert "no run lies here" in capsys.readouterr().err


def test_ctrl_c_saves_between_steps(recipe, tmp_path, undisturbed):
    """The interrupt comes in the middle of a step, and takes effect after it; the run goes on from there."""
    folder = tmp_path / "run"
    quiet = load(recipe, ["training.checkpoint_seconds=1e6"])

    def interrupt(event, numbers):
        if event == "step" and numbers["step"] == 6:
            os.kill(os.getpid(), signal.SIGINT)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(quiet, folder, event_log=interrupt)
        assert checkpoints.load(folder / "last.safetensors")[1]["step"] == 6
        train(quiet, folder, resume=True)
    finally:
        torch.set_num_threads(threads)
    assert_same(folder, undisturbed)


def test_a_dry_run_writes_nothing(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    assert run("train", recipe, "--dry-run") == 0
    out = capsys.readouterr().out
    assert "loss.margin" in out
    assert "24 steps" in out
    assert set(tmp_path.rglob("*")) == before


def test_plain_values_make_a_recipe():
    with pytest.raises(ValueError, match=r"here: the key 'model' is missing"):
        check_recipe({"data": {"layout": "digits"}}, "here")
