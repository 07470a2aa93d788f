"""What a run is about: all in which classification and detection differ, so that one loop trains both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

if TYPE_CHECKING:  # a run has a task
    from calibrant.data import Batch, Dataset, Pipeline
    from calibrant.training.datasets import Sets
    from calibrant.training.recipe import Recipe
    from calibrant.training.run import Run
    from calibrant.training.run_folder import RunFolder

#: Called with an event of a run ("start", "step", "epoch", "checkpoint", "predicting", "predicted", "finished already")
#: and its numbers.
EventLog = Callable[[str, Mapping[str, Any]], None]


class MicroBatch(NamedTuple):
    """A micro-batch, and its weight in the mean over the batch of all processes."""

    inputs: Any
    target: Any
    ids: Tensor
    weight: float


class Task(ABC):
    """Model, batches, loss and evaluation of a kind of run; it holds nothing that changes during a run."""

    def select(self, sets: Sets) -> Sets:
        """The samples of each set that the run is about; all if not said otherwise."""
        return sets

    @abstractmethod
    def check(self, recipe: Recipe, sets: Sets) -> None:
        """Raise a ValueError if recipe and data do not fit, before anything is made or written."""

    @abstractmethod
    def model(self, recipe: Recipe, sets: Sets, *, trust_code: bool) -> nn.Module:
        """The network, from the recipe's seed or weights."""

    @abstractmethod
    def pipeline(self, recipe: Recipe, train: Dataset) -> Pipeline:
        """Training data as batches."""

    @abstractmethod
    def rehearse(self, run: Run) -> None:
        """Raise a ValueError unless the model takes the data and gives what the loss needs."""

    @abstractmethod
    def parts(self, run: Run, batch: Batch) -> list[MicroBatch]:
        """The micro-batches of a step, each with its weight."""

    @abstractmethod
    def loss(self, run: Run, part: MicroBatch) -> tuple[Tensor | None, Any]:
        """The share of a part in the loss, None if it has none, and what the terms are computed from."""

    @abstractmethod
    def terms(self, run: Run, part: MicroBatch, output: Any) -> dict[str, float]:
        """The terms of the loss of a part, for the log."""

    @abstractmethod
    def remember(self, run: Run, parts: list[MicroBatch], outputs: list[Any]) -> None:
        """Tell a loss with a memory what was predicted."""

    @abstractmethod
    def validate(self, run: Run, val: Dataset) -> dict[str, float]:
        """Metrics after an epoch; every process calls it."""

    @abstractmethod
    def evaluate(self, run: Run, sets: Sets, folder: RunFolder, event_log: EventLog) -> dict[str, dict[str, float]]:
        """Metrics of every set at the end, by the first process, which writes what was predicted to the folder."""
