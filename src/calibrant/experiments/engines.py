"""Engines by name."""

from __future__ import annotations

from calibrant.experiments.comparing import Engine
from calibrant.experiments.local import Local
from calibrant.training import Recipe

#: Runs at a time: more is a slip of the pen.
MOST_JOBS = 4096


def engine_of(
    name: str, recipe: Recipe, jobs: int | None = None, address: str | None = None, accelerator: str = "auto"
) -> Engine:
    """What executes the runs of a recipe.

    Args:
        name: ``"local"`` or ``"ray"``.
        recipe: Its resources are those of one run.
        jobs: Runs at a time; as many as fit if None.
        address: Of a Ray cluster; None starts one on this machine.
        accelerator: As Lightning Fabric takes it.
    """
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise ValueError(f"from 1 to {MOST_JOBS} runs are done at a time, got {jobs}")
    if name == "local":
        if address is not None:
            raise ValueError("an address is for the engine ray; local runs are processes of this machine.")
        return Local(jobs, recipe.resources.cpus, accelerator=accelerator)
    if name != "ray":
        raise ValueError(f"unknown engine {name!r}; known are local and ray.")
    from calibrant.experiments.on_ray import OnRay  # here, because Ray is an extra

    return OnRay(address, recipe.resources, jobs, accelerator)
