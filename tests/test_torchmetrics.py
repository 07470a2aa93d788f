"""The sketch as a torchmetrics.Metric: forward, reset, several processes, precision of a parent module."""

import json
import math
import os

import pytest
import torch
import torch.distributed

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
