"""Sketches of tensors and of several processes, and as a torchmetrics.Metric: forward, reset, precision of a parent."""

import json
import math
import os

import numpy as np
import pytest
import torch
import torch.distributed

from calibrant._tensor_sketch import count_tensors, reduce_on_device, sum_over_processes
from calibrant.metrics import ConfidenceSketch as PlainSketch
from calibrant.metrics import kernel
from calibrant.torchmetrics import ConfidenceSketch
from tests.helpers.processes import finish, start


def test_forward_reset_and_deepcopy_behave_as_torchmetrics_says():
    sketch = ConfidenceSketch()
    z, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    batch = sketch(z, y)
    assert 0 < batch["accuracy"] < 1  # else there are metrics that are NaN, which equals nothing
    assert batch == sketch.compute()
    sketch(z, y)
    assert sketch.summary().samples == 40
    sketch.reset()
    with pytest.raises(ValueError, match="empty"):
        sketch.summary()


def _processes(folder):
    """Both of them: the second is forked from the first, so that torchmetrics is imported once."""
    other = os.fork()
    _process(0 if other else 1, folder)
    if not other:
        os._exit(0)
    assert os.waitpid(other, 0)[1] == 0


def _process(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    generator = torch.Generator().manual_seed(7)
    z, y = torch.randn(301, 5, generator=generator), torch.randint(0, 5, (301,), generator=generator)
    sketch = ConfidenceSketch()
    alone = sketch(z[rank::2], y[rank::2])["accuracy"]
    numbers = [sketch.compute(), sketch.cells.sum().item(), alone]
    (folder / f"{rank}.json").write_text(json.dumps(numbers))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path):
    assert finish(start(_processes, tmp_path)) == 0
    (first, held, alone), (second, _, other) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    generator = torch.Generator().manual_seed(7)
    z, y = torch.randn(301, 5, generator=generator), torch.randint(0, 5, (301,), generator=generator)
    whole = ConfidenceSketch()
    whole.update(z, y)
    assert first == pytest.approx(whole.compute(), abs=1e-12)
    assert second == first
    right = (z.argmax(1) == y).double()
    assert (alone, other) == pytest.approx((right[::2].mean().item(), right[1::2].mean().item()))
    assert held == 151  # compute synchronises for itself only: the state is each process's own again


def test_forward_keeps_the_state_whatever_comes():
    sketch = ConfidenceSketch(ignore_index=0)
    sketch(torch.randn(30, 3), torch.arange(30) % 3)
    assert sketch(torch.randn(4, 3), torch.zeros(4, dtype=torch.int64)) == {}
    with pytest.raises(ValueError, match="finite"):
        sketch(torch.full((4, 3), math.nan), torch.ones(4, dtype=torch.int64))
    assert sketch.summary().samples == 20


def test_sums_stay_float64_when_a_model_changes_precision():
    parent = torch.nn.Module()
    parent.sketch = ConfidenceSketch()
    parent.sketch.update_confidence(torch.rand(100), torch.rand(100) < 0.5)
    before = parent.sketch.compute()
    parent.to(torch.bfloat16)
    parent.sketch._computed = None
    assert parent.sketch.compute() == before


def drawn():
    generator = torch.Generator().manual_seed(7)
    return torch.randn(301, 5, generator=generator), torch.randint(-1, 5, (301,), generator=generator)


def _count(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    z, y = drawn()
    sketch = PlainSketch(ignore_index=-1)
    count_tensors(sketch, z[rank::2], y[rank::2])
    total = sum_over_processes(sketch, "cpu")
    numbers = [total.compute(), total.summary().samples, sketch.summary().samples]
    (folder / f"{rank}.json").write_text(json.dumps(numbers))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_sums_over_two_processes_are_those_of_one(tmp_path):
    processes = [start(_count, rank, tmp_path) for rank in range(2)]
    assert [finish(process) for process in processes] == [0, 0]
    (first, samples, one), (second, _, other) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    z, y = drawn()
    whole = PlainSketch(ignore_index=-1)
    whole.update(z.numpy(), y.numpy())
    assert first == second == pytest.approx(whole.compute(), abs=1e-12)
    assert samples == one + other == int((y >= 0).sum())  # what each has counted itself stays its own


def test_one_process_is_all_there_is():
    sketch = PlainSketch(ignore_index=-1)
    count_tensors(sketch, *drawn())
    assert sum_over_processes(sketch, "cpu") is sketch


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_reductions_on_a_device_are_those_of_the_definition(kind):
    rng = np.random.default_rng(2)
    z = rng.integers(-3, 4, size=(57, 5)).astype(np.float32)  # with ties
    z[0] = [60, -60, 0, 0, 0]
    z = z if kind == "logits" else np.exp(z) / np.exp(z).sum(1, keepdims=True)
    y = rng.integers(0, 5, 57)
    expected = kernel.reduce_rows(z, y, kind, np.float64)
    for ours, theirs in zip(reduce_on_device(torch.from_numpy(z), torch.from_numpy(y), kind), expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-12)
