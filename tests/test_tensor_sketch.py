"""Sketches of tensors, and of several processes."""

import json

import numpy as np
import pytest
import torch
import torch.distributed

from calibrant._tensor_sketch import count_tensors, reduce_on_device, sum_over_processes
from calibrant.metrics import ConfidenceSketch, kernel
from tests.helpers.processes import finish, start


def drawn():
    generator = torch.Generator().manual_seed(7)
    return torch.randn(301, 5, generator=generator), torch.randint(-1, 5, (301,), generator=generator)


def _process(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    z, y = drawn()
    sketch = ConfidenceSketch(ignore_index=-1)
    count_tensors(sketch, z[rank::2], y[rank::2])
    total = sum_over_processes(sketch, "cpu")
    numbers = [total.compute(), total.summary().samples, sketch.summary().samples]
    (folder / f"{rank}.json").write_text(json.dumps(numbers))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path):
    processes = [start(_process, rank, tmp_path) for rank in range(2)]
    assert [finish(process) for process in processes] == [0, 0]
    (first, samples, one), (second, _, other) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    z, y = drawn()
    whole = ConfidenceSketch(ignore_index=-1)
    whole.update(z.numpy(), y.numpy())
    assert first == second == pytest.approx(whole.compute(), abs=1e-12)
    assert samples == one + other == int((y >= 0).sum())  # what each has counted itself stays its own


def test_one_process_is_all_there_is():
    sketch = ConfidenceSketch(ignore_index=-1)
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
