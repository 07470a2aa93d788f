r"""Calibrated probability estimation [Liu2022]; top-label, as the supplement of ACLS compares with it in Table B.

Formula: most epochs minimise cross-entropy, some the calibration loss
:math:`L_C = -\frac1N \sum_n [\hat p_n \log r_n + (1 - \hat p_n) \log(1 - r_n)]`, whose target :math:`\hat p_n` is how
often the samples predicted with a confidence similar to that of sample n were right.

==============  =====================================================================================================
``form``        target of a sample with confidence :math:`r_n`
==============  =====================================================================================================
``"bin"``       the accuracy of its bin; the samples are sorted by confidence and cut into bins of equal counts
``"kernel"``    :math:`\sum_m K(r_n - r_m) c_m / \sum_m K(r_n - r_m)` with a Gaussian K, over the ``window``
                neighbours on either side in the order of confidence; a window of N takes all samples
==============  =====================================================================================================

=======================================  ==============================
letter                                   variable
=======================================  ==============================
r, predicted probability                 confidence
c, 1 if the prediction was right         correct
:math:`\hat p`, empirical probability    targets
number of bins                           bins
width of K                               bandwidth
=======================================  ==============================

Departures from [Liu2022] and its released code, which the equations here follow:

- The paper estimates the probability of the positive of two classes. Here r is the largest probability and c whether
  that class is the label; the other classes share 1 - r and are not told apart by :math:`L_C`.
- The paper predicts the whole training set once more before each calibration epoch. Here the predictions are those
  that training made during the epoch before, as for CRL. The target is found by the sample's id.
- The paper starts from a network trained by cross-entropy until its validation loss rises. Here ``start`` counts those
  epochs, and learning rate and schedule are those of the whole run.
- ``strength`` is not in the paper: a calibration epoch minimises :math:`(1 - s) L_{CE} + s L_C`; 1 is the paper, 0 is
  cross-entropy.
- The released window leaves out the last neighbour on the right; here it is symmetric. Equal confidences keep the
  order of their ids.

Values: the released code has one calibration epoch in six (``period``), a bandwidth of 0.1, a window of 500 and 10
bins. ACLS gives none of its own; 15 bins are those of its ECE.

While no target is estimated, and for samples never recorded, this is cross-entropy. In a training loop call
``loss(logits, labels, ids=ids)``, then ``loss.update(logits, labels, ids=ids)``, and ``loss.end_epoch()``.

The lens: with strength 1 the effective label is :math:`\hat p` at yhat, and the others share :math:`1 - \hat p` in
proportion to their probabilities; the label itself acts through :math:`\hat p` alone.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_integer, check_number
from calibrant.losses.base import Loss, SizedByData, Terms, register
from calibrant.losses.numerics import (
    MOST_SAMPLES,
    Target,
    check_ids,
    cross_entropy,
    first_maximum,
    label_log_odds,
    nll,
    set_at,
    softmax,
)

#: Entry of a sample that was never recorded; checkpoints hold finite numbers only, so it cannot be NaN.
NEVER = -1.0
#: Bins, neighbours and epochs that may be asked for.
MOST = 10**6


class ConfidenceMemory(SizedByData):
    """The last prediction of each training sample by its id, and the targets estimated from all of them.

    Args:
        num_samples: size of the training set, if known; otherwise the largest id seen plus one.
    """

    sized = ("confidence", "correct", "targets")
    confidence: Tensor
    correct: Tensor
    targets: Tensor
    epochs: Tensor

    def __init__(self, num_samples: int = 0):
        super().__init__()
        self.register_buffer("confidence", torch.full((num_samples,), NEVER, dtype=torch.float64))
        self.register_buffer("correct", torch.zeros(num_samples, dtype=torch.int64))
        self.register_buffer("targets", torch.zeros(0, dtype=torch.float64))  # empty unless the epoch calibrates
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

    def record(self, ids: Tensor, confidence: Tensor, correct: Tensor) -> None:
        """Replace what is remembered of these samples."""
        if ids.numel() == 0:
            return
        ids = ids.long().to(self.confidence.device)
        added = int(ids.max()) + 1 - len(self.confidence)
        if added > 0:
            self.confidence = torch.cat([self.confidence, self.confidence.new_full((added,), NEVER)])
            self.correct = torch.cat([self.correct, self.correct.new_zeros(added)])
        self.confidence[ids] = confidence.to(self.confidence)
        self.correct[ids] = correct.to(self.correct)

    def targets_of(self, ids: Tensor) -> Tensor:
        """The targets, same shape as ``ids``; `NEVER` for samples without one."""
        ids, targets = ids.long(), self.targets.to(ids.device)
        return torch.where(ids < len(targets), targets[ids.clamp(max=len(targets) - 1)], NEVER)


@register(
    "cape",
    "Calibrated probability estimation",
    short="CaPE",
    paper="Liu2022",
    equation="ACLS supplement Table B; released code",
    summary="trains, in some epochs, towards how often samples of similar confidence were right",
    use=(
        "Outcomes are uncertain by nature, so that the probability matters more than the class: in some epochs each "
        "confidence is drawn to the accuracy of the samples predicted with about that confidence."
    ),
    avoid=(
        "The network fits its training set almost perfectly: the accuracy it is drawn to is then 1 everywhere. Samples "
        "have no ids, or labels are soft."
    ),
    hyper={
        "strength": "larger: less cross-entropy in calibration epochs; 1 is the paper",
        "form": "similar confidence: 'bin', of the same bin, or 'kernel', weighted by a Gaussian",
        "bins": "larger: finer targets from fewer samples each (form='bin' only)",
        "bandwidth": "larger: smoother targets (form='kernel' only)",
        "window": "larger: more neighbours in a target, and slower (form='kernel' only)",
        "start": "larger: later first calibration epoch, after this many of cross-entropy",
        "period": "larger: rarer calibration epochs, one in this many",
        "num_samples": "size of the training set, if known beforehand",
    },
    soft=False,
)
class CaPE(Loss):
    """Cross-entropy, alternating with cross-entropy to the empirical probability of being right.

    Args:
        strength: share of the calibration loss in a calibration epoch, from 0 to 1.
        form: how the empirical probability is estimated, see above.
        bins: for ``form="bin"``.
        bandwidth: standard deviation of the kernel, for ``form="kernel"``.
        window: neighbours on either side, for ``form="kernel"``.
        start: epochs before the first calibration epoch; at least one, which makes the predictions.
        period: one epoch in this many calibrates from then on.
        num_samples: size of the training set; the memory grows by itself when it is 0.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import CaPE
        >>> loss, ids = CaPE(bins=1), torch.tensor([0, 1])
        >>> logits, labels = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([1, 1])
        >>> loss.update(logits, labels, ids=ids)  # sample 0 wrong, sample 1 right
        >>> loss.end_epoch()
        >>> loss.memory.targets
        tensor([0.5000, 0.5000], dtype=torch.float64)
        >>> loss(logits, labels, ids=ids)
        tensor(0.7989)
    """

    def __init__(
        self,
        *,
        strength: float = 1.0,
        form: Literal["bin", "kernel"] = "bin",
        bins: int = 15,
        bandwidth: float = 0.1,
        window: int = 500,
        start: int = 1,
        period: int = 6,
        num_samples: int = 0,
        **common: Any,
    ):
        super().__init__(**common)
        self.strength = check_number("strength", strength, 0.0, 1.0)
        self.form = check_choice("form", form, ("bin", "kernel"))
        self.bins = check_integer("bins", bins, 1, MOST)
        self.bandwidth = check_number("bandwidth", bandwidth, 1e-6, 1e6)
        self.window = check_integer("window", window, 1, MOST_SAMPLES)
        self.start = check_integer("start", start, 1, MOST)
        self.period = check_integer("period", period, 1, MOST)
        self.num_samples = check_integer("num_samples", num_samples, 0, MOST_SAMPLES)
        self.memory = ConfidenceMemory(self.num_samples)

    def update(self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None) -> None:
        """Remember how sure the model was of these samples and whether it was right; call once per training step."""
        if ids is None:
            raise ValueError("CaPE remembers samples by id: call update(logits, target, ids=...)")
        with torch.no_grad():
            z, t = super()._prepare(logits, target)
            assert t.labels is not None  # soft targets are refused
            ids = check_ids("CaPE", ids, t.labels)
            # float64 orders confidences that are all 1 in float32.
            confidence, predicted = z.double().softmax(1).max(1)
            counted = torch.ones_like(t.labels, dtype=torch.bool) if t.valid is None else t.valid
            self.memory.record(ids[counted], confidence[counted], (predicted == t.labels)[counted])

    def end_epoch(self, observed: Tensor | None = None) -> None:
        """Count a finished epoch, and estimate the targets if the next one calibrates."""
        memory = self.memory
        memory.epochs += 1
        after = int(memory.epochs) - self.start
        memory.targets = memory.targets.new_zeros(0)
        recorded = memory.confidence != NEVER
        if after < 0 or after % self.period or not bool(recorded.any()):
            return
        confidence, correct = memory.confidence[recorded], memory.correct[recorded]
        if self.form == "bin":
            estimates = bin_accuracy(confidence, correct, self.bins)
        else:
            estimates = kernel_accuracy(confidence, correct, self.bandwidth, self.window)
        memory.targets = torch.full_like(memory.confidence, NEVER)
        memory.targets[recorded] = estimates

    def _prepare(self, logits: Tensor, target: Tensor, ids: Tensor | None = None) -> tuple[Tensor, Target]:
        """As in `Loss`, with the target of each position, or None in an epoch of cross-entropy."""
        z, t = super()._prepare(logits, target)
        if len(self.memory.targets) == 0:
            return z, t
        if ids is None:
            raise ValueError("CaPE finds targets by id: call it with ids=...")
        assert t.labels is not None
        ids = check_ids("CaPE", ids, t.labels)
        return z, t._replace(correctness=self.memory.targets_of(ids).to(z.dtype))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Cross-entropy, or its mixture with the calibration loss."""
        fidelity = nll(z, t, self.weight)
        if t.correctness is None:
            return Terms(fidelity, torch.zeros_like(fidelity))
        share = self._share(t.correctness)
        return Terms((1 - share) * fidelity, share * _calibration_loss(z, z.argmax(1), t.correctness))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """The calibration loss has a bounded gradient: r - target at yhat, and its negative shared by the others."""
        top, predicted, _ = first_maximum(z)
        value, gradient = cross_entropy(z, softmax(z, top), t)
        if t.correctness is None:
            return value, gradient
        share, targets = self._share(t.correctness), t.correctness.unsqueeze(1)
        confidence = z.softmax(1).gather(1, predicted)
        others = z.scatter(1, predicted, -torch.inf).softmax(1)
        pull = set_at(others.mul_(targets - confidence), predicted, confidence - targets)
        value = (1 - share) * value + share * _calibration_loss(z, predicted.squeeze(1), t.correctness)
        weight = share.unsqueeze(1)
        return value, gradient.mul_(1 - weight).add_(pull.mul_(weight))

    def _share(self, targets: Tensor) -> Tensor:
        """The weight of the calibration loss at each position: none where there is no target."""
        return self.strength * (targets != NEVER).to(targets.dtype)


def _calibration_loss(z: Tensor, predicted: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of the confidence to its target, per position."""
    log_confidence, log_rest = label_log_odds(z, Target(predicted))
    return -targets * log_confidence - (1 - targets) * log_rest


def bin_accuracy(confidence: Tensor, correct: Tensor, bins: int) -> Tensor:
    """For each sample ``[N]`` the accuracy of its bin, of ``bins`` with equal counts in the order of confidence."""
    size = len(confidence)
    order = torch.argsort(confidence, stable=True)
    edges = torch.arange(bins + 1, device=order.device) * size // bins
    counts = edges.diff()
    # Whole numbers, whose running sum is the same on every device.
    hits = torch.cat([correct.new_zeros(1), correct[order].cumsum(0)])[edges].diff()
    accuracy = (hits.double() / counts.clamp(min=1)).repeat_interleave(counts)
    return torch.empty_like(accuracy).scatter_(0, order, accuracy)


def kernel_accuracy(confidence: Tensor, correct: Tensor, bandwidth: float, window: int) -> Tensor:
    """For each sample ``[N]`` the accuracy of its ``window`` neighbours on either side, weighted by a Gaussian."""
    order = torch.argsort(confidence, stable=True)
    r, c = confidence[order], correct[order].to(confidence.dtype)
    mass, hits = torch.ones_like(r), c.clone()  # its own weight is 1
    for distance in range(1, min(window, len(r) - 1) + 1):
        weight = torch.exp(-0.5 * ((r[distance:] - r[:-distance]) / bandwidth).square())
        mass[distance:] += weight
        mass[:-distance] += weight
        hits[distance:] += weight * c[:-distance]
        hits[:-distance] += weight * c[distance:]
    return torch.empty_like(r).scatter_(0, order, hits / mass)
