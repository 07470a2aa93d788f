"""Data for the tests of the calibrators, and one of each kind."""

import torch

from calibrant.posthoc import (
    EnsembleTemperatureScaling,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    VectorScaling,
)

METHODS = {
    "vector": VectorScaling,
    "vector as printed": lambda: VectorScaling(strength=0),
    "matrix": MatrixScaling,
    "matrix as printed": lambda: MatrixScaling(0.1, 0.001, strength=0),
    "isotonic": IsotonicCalibration,
    "isotonic top": lambda: IsotonicCalibration("top-label"),
    "histogram": HistogramBinning,
    "histogram mass": lambda: HistogramBinning(7, binning="mass"),
    "histogram top": lambda: HistogramBinning(9, mode="top-label"),
    "histogram mass top": lambda: HistogramBinning(6, binning="mass", mode="top-label"),
    "ensemble": EnsembleTemperatureScaling,
    "ensemble mse": lambda: EnsembleTemperatureScaling("mse"),
}


def drawn(size, classes, seed=0, *, scale=1.0, skew=0.0):
    """Logits whose labels follow their softmax, then made wrong: scaled, and skewed by class."""
    generator = torch.Generator().manual_seed(seed)
    honest = 2 * torch.randn(size, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
    turn = torch.linspace(-skew, skew, classes, dtype=torch.float64)
    return scale * honest * turn.exp() + turn, labels


def nll(z, y):
    return float(torch.nn.functional.cross_entropy(torch.as_tensor(z).double(), y))


def slopes(objective, x, step=1e-5):
    """The gradient by central differences."""
    for i in range(len(x)):
        ahead, behind = x.copy(), x.copy()
        ahead[i] += step
        behind[i] -= step
        yield (objective(ahead) - objective(behind)) / (2 * step)


Z, Y = drawn(211, 5, 1, scale=3.0)
