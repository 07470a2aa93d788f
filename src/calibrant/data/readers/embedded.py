"""The embedded sets by name, wherever a path is asked for: ``calibrant data inspect scenes``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from calibrant.data.dataset import Dataset
from calibrant.data.findings import OnError
from calibrant.data.layouts import layout
from calibrant.data.readers._shared import never_raising


def _named(name: str) -> Callable[[Path], tuple[str, ...]]:
    # A folder of that name in the current one goes before the embedded set.
    return never_raising(lambda root: ("train", "val", "test") if str(root) == name and not root.exists() else ())


@layout("scenes", summary="no files: drawn from a seed, with a known truth", splits=_named("scenes"))
def embedded_scenes(
    root: str | Path,
    split: str,
    *,
    on_error: OnError = "raise",
    samples: int | None = None,
    seed: int = 0,
    shift: Literal["texture", "sketch"] | None = None,
    context: float = 0.8,
    ambiguous: float = 0.2,
) -> Dataset:
    """`calibrant.data.scenes.scenes`, which says what the options mean."""
    from calibrant.data.scenes import scenes

    return scenes(split, samples=samples, seed=seed, shift=shift, context=context, ambiguous=ambiguous)


@layout("digits", summary="no files: scikit-learn's handwritten digits", splits=_named("digits"))
def embedded_digits(root: str | Path, split: str, *, on_error: OnError = "raise", seed: int = 0) -> Dataset:
    """`calibrant.data.digits.digits`."""
    from calibrant.data.digits import digits

    return digits(split, seed=seed)
