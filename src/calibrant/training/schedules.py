"""Learning-rate schedules as functions of the progress of a run: nothing to save, nothing to restore.

Progress is counted in epochs, as the papers print it, and fractions of an epoch count where a schedule is smooth.

    multistep   base * gamma^(milestones passed)                                    ALS, ACLS, MbLS, LR
    step        base * gamma^floor(epoch / every)                                   MbLS on CUB and VOC
    cosine      base * (floor + (1 - floor) (1 + cos(pi t)) / 2)                    SC, ACLS on ImageNet
    poly        base * (1 - t)^power                                                SC and ACLS on segmentation
    constant    base

with t the share of the run that is done, after a linear warm-up from ``warmup_start`` of the rate over ``warmup``
epochs. ``decay`` divides by 1 + decay * step on top of it, as Keras' optimisers do (LR's code).
"""

from __future__ import annotations

import bisect
import math
from typing import Annotated, Literal

from pydantic import Field

from calibrant.training.settings import Factor, Number, Rate, Settings, Share


class Schedule(Settings):
    """What multiplies the learning rate, from the first step to the last.

    Example:
        >>> schedule = Schedule(name="multistep", milestones=[2, 4], gamma=0.1)
        >>> [round(schedule.factor(epoch, epochs=6), 4) for epoch in (0, 1.99, 2, 5)]
        [1.0, 1.0, 0.1, 0.01]
        >>> Schedule(name="cosine", warmup=1).factor(0.5, epochs=10)
        0.5
    """

    name: Literal["constant", "multistep", "step", "cosine", "poly"] = "constant"
    milestones: Annotated[tuple[Factor, ...], Field(max_length=10_000)] = ()
    every: Annotated[Number, Field(ge=1e-6, le=1e6)] = 30.0
    gamma: Annotated[Number, Field(gt=0, le=1)] = 0.1
    power: Rate = 0.9
    floor: Share = 0.0
    warmup: Factor = 0.0
    warmup_start: Share = 0.0
    decay: Factor = 0.0

    def factor(self, epoch: float, epochs: float, step: int = 0) -> float:
        """What the rate is multiplied by after ``epoch`` of ``epochs`` epochs (a fraction between steps)."""
        return self._by_epoch(epoch, epochs) / (1.0 + self.decay * step)

    def _by_epoch(self, epoch: float, epochs: float) -> float:
        if epoch < self.warmup:
            return self.warmup_start + (1.0 - self.warmup_start) * epoch / self.warmup
        if self.name == "multistep":
            return self.gamma ** bisect.bisect_right(sorted(self.milestones), epoch)
        if self.name == "step":
            return self.gamma ** math.floor(epoch / self.every)
        done = min(max((epoch - self.warmup) / max(epochs - self.warmup, 1e-12), 0.0), 1.0)
        if self.name == "cosine":
            return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * done))
        if self.name == "poly":
            return (1.0 - done) ** self.power
        return 1.0
