"""Runs in several processes: shares of a batch, readers, interrupts from a terminal, and one line of output."""

import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from PIL import Image

from calibrant.data import Batches
from calibrant.training import distributed, train
from calibrant.training.recipe import check_recipe
from tests.helpers import digit_runs
from tests.helpers.errors import facts
from tests.helpers.processes import Command, run_command, run_ranks

RECIPE = """
[data]
layout = "digits"
hold_out = {count = 101}
[model]
name = "mlp"
input_size = [3, 8, 8]
hidden = [32]
[optimiser]
rate = 0.1
[training]
batch_size = 61
epochs = 2
"""


def words(recipe, folder, *others, quiet=True):
    return ["train", recipe, "--accelerator", "cpu", "-o", folder, *others, *(["-q"] if quiet else [])]


def settings(*changes):
    return [word for change in changes for word in ("--set", change)]


def assert_alike(one, two):
    """Two runs, of one process and of two, have learned the same."""
    (a, state_one), (b, state_two) = digit_runs.tensors(one), digit_runs.tensors(two)
    remembered = [name for name in a if name.startswith("loss/")]
    assert remembered
    for name in remembered:  # counts are whole numbers; a confidence adds up what many weights differ by
        assert torch.allclose(a[name], b[name], rtol=0, atol=1e-4 * a[name].is_floating_point()), name
    assert state_one["step"] == state_two["step"]
    for name in a:
        if name.startswith("model/"):
            assert torch.allclose(a[name], b[name], atol=2e-5), name
    return state_one["history"][-1], state_two["history"][-1]


@pytest.mark.parametrize("size", [1, 2, 3], ids=lambda size: f"{size} left")
def test_processes_are_in_step_and_miss_nothing(size):
    """The last batch may be smaller than the number of processes."""
    world, number = 3, 12 + size
    shuffled = [list(Batches(number, 6, world=world, rank=rank)) for rank in range(world)]
    assert len({len(batches) for batches in shuffled}) == 1
    assert all(batch for batches in shuffled for batch in batches)
    seen = [i for batches in shuffled for batch in batches for _, i in batch]
    assert len(seen) == len(set(seen)) == (number if size == world else 12)
    plain = [list(Batches(number, 6, world=world, rank=rank, shuffle=False)) for rank in range(world)]
    assert sorted(i for batches in plain for batch in batches for _, i in batch) == list(range(number))
    assert all(batch for batches in plain for batch in batches)


@pytest.mark.slow
def test_batches_that_do_not_share_out_evenly(recipe, tmp_path):
    """Odd batches, a smaller last one, in parts, and a loss with a memory: two processes as one."""
    changes = settings("loss={name='crl', strength=0.0}", "training.accumulate=3", "training.drop_last=false")
    assert run_command(*words(recipe, tmp_path / "one", *changes), folder=tmp_path).returncode == 0
    first, second = run_ranks(*words(recipe, tmp_path / "two", *changes, quiet=False), folder=tmp_path)
    assert first.returncode == second.returncode == 0
    assert (first.stdout + second.stdout).count("accuracy") == 1  # one of the two speaks
    assert (first.stderr + second.stderr).count("epoch 1:") == 1
    one, two = assert_alike(tmp_path / "one", tmp_path / "two")
    assert one["val_nll"] == pytest.approx(two["val_nll"], abs=1e-4)
    result = json.loads((tmp_path / "two" / "result.json").read_text())  # of the model that was saved
    assert result["sets"]["val"]["nll"] == pytest.approx(two["val_nll"], rel=1e-6)


@pytest.mark.slow
def test_what_cape_remembers_is_of_all_processes(recipe, tmp_path):
    """The second epoch learns from what both processes predicted in the first, and so does the third."""
    changes = settings("loss={name='cape', form='kernel', period=1}", "training.epochs=3", "training.drop_last=false")
    assert run_command(*words(recipe, tmp_path / "one", *changes), folder=tmp_path).returncode == 0
    outputs = run_ranks(*words(recipe, tmp_path / "two", *changes), folder=tmp_path)
    assert [output.returncode for output in outputs] == [0, 0]
    assert_alike(tmp_path / "one", tmp_path / "two")
    memory = {name: tensor for name, tensor in digit_runs.tensors(tmp_path / "two")[0].items() if "memory" in name}
    assert (memory["loss/memory.confidence"] > 0).all()  # of every sample, whichever process it went to
    assert len(memory["loss/memory.targets"]) == len(memory["loss/memory.confidence"]) > 0


@pytest.mark.slow
def test_what_a_loss_learns_from_validation_data_is_of_all_processes(recipe, tmp_path):
    """101 samples in batches of 50: the last has one, and the second process no share of it."""
    changes = settings("loss={name='calsalm', margin=2.0, rho_step=1}", "training.eval_batch_size=50")
    assert run_command(*words(recipe, tmp_path / "one", *changes), folder=tmp_path).returncode == 0
    outputs = run_ranks(*words(recipe, tmp_path / "two", *changes), folder=tmp_path)
    assert [output.returncode for output in outputs] == [0, 0]
    assert_alike(tmp_path / "one", tmp_path / "two")
    learned = digit_runs.tensors(tmp_path / "two")[0]["loss/multipliers"]
    assert len(learned) == 10
    assert learned.max() > 0.01


def wait_for(process, beginning):
    """Read what a process says until a line begins so."""
    assert any(line.startswith(beginning) for line in process.stderr)


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_readers_too(recipe, tmp_path):
    """SIGINT goes to the whole group of processes; the run is saved, and the command that goes on with it is said."""
    changes = ["--loss", "ls", *settings("loss.alpha=0.3", "training.workers=2", "training.epochs=2000")]
    typed = [str(word) for word in words(recipe, tmp_path / "run", *changes, quiet=False)]
    process = Command(*typed, folder=tmp_path, new_session=True)
    wait_for(process, "epoch 2")
    time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate()
    assert output.returncode == 130
    assert "Traceback" not in output.stderr
    assert digit_runs.tensors(tmp_path / "run")[1]["epoch"] >= 2
    (hint,) = [line for line in output.stderr.splitlines() if "--resume" in line]
    assert shlex.join(["calibrant", *typed, "--resume"]) in hint


def refusal(first, *others):
    """What the processes of a run say together, of which the first alone is to report a failure."""
    said = "".join(output.stderr for output in (first, *others))
    assert first.returncode == 2, said
    assert all(output.returncode == 0 for output in others), said
    assert "Traceback" not in said
    return said.strip()


@pytest.mark.slow
def test_several_processes_fail_with_one_sentence(recipe, tmp_path):
    """A folder that cannot be had, and a loss that is no number."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("not a run")
    said = refusal(*run_ranks(*words(recipe, tmp_path / "other"), folder=tmp_path))
    assert said.count("\n") == 0
    assert "mine.txt" in said
    diverging = settings("optimiser.rate=1e6", "optimiser.weight_decay=1e6")
    started = words(recipe, tmp_path / "y", "--devices", "2", *diverging)  # the first starts the second
    said = refusal(run_command(*started, folder=tmp_path))
    assert said.count("the loss is") == 1


@pytest.mark.slow
def test_what_only_one_process_meets_is_said_by_the_first(tmp_path):
    """The first batch of one class is all the second process's; one of its images is none."""
    for split, number in (("train", 8), ("test", 2)):
        for name in ("cat", "dog"):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for i in range(number):
                Image.new("RGB", (8, 8), (i * 20, 0, 0)).save(folder / f"{i}.png")
    mine = next(iter(Batches(16, 16, seed=0, rank=1, world=2)))
    index = next(i for _, i in mine if i > 1)  # those before are looked at by all processes beforehand
    broken = tmp_path / "images" / "train" / ("cat" if index < 8 else "dog") / f"{index % 8}.png"
    broken.write_bytes(b"no image")
    file = tmp_path / "images.toml"
    file.write_text(
        """
        [data]
        layout = "image-folder"
        path = "images"
        steps = [{step = "resize", size = 8}]
        [model]
        name = "mlp"
        input_size = [3, 8, 8]
        hidden = [8]
        [optimiser]
        rate = 0.1
        [training]
        batch_size = 16
        epochs = 1
        """
    )
    said = refusal(*run_ranks(*words(file, tmp_path / "run"), folder=tmp_path))
    assert said.count("\n") == 0
    assert broken.name in said


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_a_process_that_is_killed_ends_the_others(which, recipe, tmp_path):
    endless = words(recipe, tmp_path / "run", "--devices", "2", *settings("training.epochs=5000"), quiet=False)
    process = Command(*endless, folder=tmp_path)
    wait_for(process, "epoch 2")  # the first has been saved
    children = (Path(f"/proc/{process.pid}/task/{process.pid}/children")).read_text().split()
    os.kill(process.pid if which == 0 else int(children[0]), signal.SIGKILL)
    output = process.communicate()
    if which == 1:
        assert output.returncode == 2
        assert "--resume" in output.stderr
        assert "Traceback" not in output.stderr
    assert digit_runs.tensors(tmp_path / "run")[1]["epoch"] >= 1


def test_a_processor_that_dies_of_bf16_is_told_before_the_run(tmp_path, monkeypatch):
    """The probe runs in a process of its own: here one that an illegal instruction ends, then one that lives."""
    recipe = check_recipe(digit_runs.DIGITS | {"training": {"precision": "bf16-mixed", "max_steps": 1}}, "bf16")
    checked = distributed.check_bf16.__wrapped__
    monkeypatch.setattr(distributed, "check_bf16", checked)
    real = subprocess.run
    kill = f"import os, signal; os.kill(os.getpid(), {int(signal.SIGILL)})"
    monkeypatch.setattr(subprocess, "run", lambda words, **options: real([*words[:2], kill], **options))
    with pytest.raises(ValueError, match=facts("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")):
        train(recipe, tmp_path / "run", accelerator="cpu")
    assert not (tmp_path / "run" / "log.jsonl").exists()
    monkeypatch.setattr(subprocess, "run", lambda words, **options: real([*words[:2], "pass"], **options))
    checked()
