r"""The partition behind the sketch: every score in [0, 1] falls into one of a fixed number of cells.

Cells are intervals (lo, hi], numbered from low to high. Three parts:

- [0, 299/300]: 299 base bins of width 1/300, split evenly into 1024 cells each up to 1/2 and into 4096 above, where
  predictions crowd: cells of width 8e-7. The edges of ECE with 10, 12, 15, 20, 25, 30, 50, 60, 75, 100, 150 or 300
  bins are edges of base bins.
- (299/300, 1): what matters there is :math:`u = 1 - c`, which a confident model drives towards 0 over many orders of
  magnitude. 4096 cells per halving of u, by the leading bits of the float, for 46 halvings, down to 5e-17, which
  no float64 below 1 comes closer to.
- exactly 1: a cell of its own, so that saturated confidences are known to be tied.

A confidence that was rounded to its floating-point type counts as lying on an edge when the edge, rounded to that type,
equals it: 0.2 as float32 is above 1/5, and belongs to the bin that ends there all the same.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from calibrant.base.arrays import Doubles, Precision, round_to
from calibrant.base.checks import Ints

BASE = 300
HALF = BASE // 2
PER_LOW, PER_HIGH = 1024, 4096  # cells of a base bin below and above 1/2
OCTAVES, PER_OCTAVE = 46, 4096
LOW = HALF * PER_LOW
LINEAR = LOW + (HALF - 1) * PER_HIGH
CELLS = LINEAR + OCTAVES * PER_OCTAVE + 1

MANTISSA_SHIFT = 52 - int(math.log2(PER_OCTAVE))
FIRST_KEY = 1023 * PER_OCTAVE - 1  # leading bits of the largest float64 below 1
ROUNDING = 1e-9  # in cells: a confidence that was rounded up to an edge stays below it
_SQUASH = 8.0


def cells_of(confidence: Doubles, shortfall: Doubles) -> Ints:
    """The cell of each score, int64.

    Args:
        confidence: float64, in [0, 1].
        shortfall: float64, 1 - confidence, given apart because it may be known far more precisely than the confidence.
    """
    above = np.maximum(confidence, 0.5)
    above -= 0.5
    above *= BASE * (PER_HIGH - PER_LOW)
    position = confidence * (BASE * PER_LOW)
    position += above
    position -= 1 + ROUNDING
    linear: Ints = np.maximum(np.ceil(position, out=position), 0.0, out=position).astype(np.int64)
    tail = (shortfall * BASE).view(np.int64)
    tail >>= MANTISSA_SHIFT
    np.subtract(FIRST_KEY, tail, out=tail)
    # A shortfall of 0 has key 0 and so the last cell; no other float64 gets as far.
    np.minimum(tail, OCTAVES * PER_OCTAVE, out=tail)
    np.maximum(tail, 0, out=tail)
    tail += LINEAR
    # Arithmetic, because a choice by a mask without a pattern costs ten times as much.
    tail -= linear
    tail *= linear >= LINEAR
    linear += tail
    return linear


def cells_of_confidence(confidence: Doubles, precision: Precision) -> Ints:
    """The cell of each confidence that came in a floating-point type; one that was rounded to an edge lies on it."""
    placed = confidence if precision == "float64" else snap(confidence, precision)
    return cells_of(placed, 1 - placed)


def snap(confidence: Doubles, precision: Precision) -> Doubles:
    """Confidences that are the edge of a base bin, rounded to their floating-point type, put back on that edge."""
    edge = np.rint(confidence * BASE) / BASE
    return np.where(round_to(edge, precision) == confidence, edge, confidence)


def squash(score: Doubles) -> tuple[Doubles, Doubles]:
    """Map any finite score to [0, 1] in order: the mapped value and 1 minus it."""
    half = 0.5 * score / (_SQUASH + np.abs(score))
    return 0.5 + half, 0.5 - half


def unsquash(value: Doubles) -> Doubles:
    """The score that `squash` maps to each value."""
    half = np.clip(value, 0.0, 1.0) - 0.5
    with np.errstate(divide="ignore"):
        return 2 * _SQUASH * half / (1 - 2 * np.abs(half))


@functools.cache
def shortfall_edges() -> Doubles:
    """1 minus the edges of the cells, from 1 down to 0; the last cell lies between two zeros."""
    low = 1 - np.arange(LOW) / (BASE * PER_LOW)
    high = 0.5 - np.arange(LINEAR - LOW + 1) / (BASE * PER_HIGH)
    octave = np.arange(OCTAVES)[:, None]
    step = np.arange(1, PER_OCTAVE + 1)[None]
    tail = (np.ldexp(1.0, -octave) * (1 - 0.5 * step / PER_OCTAVE)).ravel() / BASE
    tail[-1] = 0.0
    edges = np.concatenate([low, high, tail, [0.0]])
    edges.flags.writeable = False
    return edges


@functools.cache
def centres() -> Doubles:
    """The middle of each cell."""
    u = shortfall_edges()
    middle = 1 - 0.5 * (u[:-1] + u[1:])
    middle.flags.writeable = False
    return middle


def base_bins(cells: Ints) -> Ints:
    """The base bin (0..299) of each cell number."""
    # Of the numbers that the two parts would give, the right one is the smaller; the tail is all in the last bin.
    bins = cells - LOW
    bins >>= PER_HIGH.bit_length() - 1
    bins += HALF
    np.minimum(bins, cells >> (PER_LOW.bit_length() - 1), out=bins)
    return np.minimum(bins, BASE - 1, out=bins)


@functools.cache
def base_begins() -> Ints:
    """The first cell of each base bin."""
    begins = np.concatenate([np.arange(HALF) * PER_LOW, LOW + np.arange(HALF) * PER_HIGH])
    begins.flags.writeable = False
    return begins
