"""Every train-time method of the papers, one file each, behind one call: ``loss(logits, target)``.

Example:
    >>> import torch
    >>> from calibrant.losses import ACLS, get, names
    >>> logits = torch.tensor([[12.0, 3.0, 0.0], [1.0, 2.0, 0.5]], requires_grad=True)
    >>> loss = ACLS(margin=6.0)(logits, torch.tensor([0, 1]))
    >>> loss.backward()
    >>> [get(name).method.paper for name in names()][-1]
    'ALS'
"""

from calibrant.base.extras import needs_torch

# ruff: noqa: I001  (the order of these lines is the order of `names` and of the docs)
from calibrant.losses.base import Loss, Method, Terms, describe, get, names, register
from calibrant.losses.numerics import Target, nll, type_words
from calibrant.losses.cross_entropy import CrossEntropy
from calibrant.losses.label_smoothing import LabelSmoothing
from calibrant.losses.focal import Focal
from calibrant.losses.flsd import FLSD
from calibrant.losses.dual_focal import DualFocal
from calibrant.losses.adafocal import AdaFocal
from calibrant.losses.confidence_penalty import ConfidencePenalty
from calibrant.losses.brier import BrierScore
from calibrant.losses.mmce import MMCE
from calibrant.losses.soft_ece import SoftECE
from calibrant.losses.esd import ESD
from calibrant.losses.mdca import MDCA
from calibrant.losses.cpc import CPC
from calibrant.losses.mbls import MbLS
from calibrant.losses.cals import CALS
from calibrant.losses.crl import CRL
from calibrant.losses.cape import CaPE
from calibrant.losses.acls import ACLS
from calibrant.losses.label_relaxation import LabelRelaxation
from calibrant.losses.deep_gamblers import DeepGamblers
from calibrant.losses.self_adaptive import SelfAdaptive
from calibrant.losses.soft_targets import SoftTargetCrossEntropy

__all__ = [
    "ACLS",
    "CALS",
    "CPC",
    "CRL",
    "ESD",
    "FLSD",
    "MDCA",
    "MMCE",
    "AdaFocal",
    "BrierScore",
    "CaPE",
    "ConfidencePenalty",
    "CrossEntropy",
    "DeepGamblers",
    "DualFocal",
    "Focal",
    "LabelRelaxation",
    "LabelSmoothing",
    "Loss",
    "MbLS",
    "Method",
    "SelfAdaptive",
    "SoftECE",
    "SoftTargetCrossEntropy",
    "Target",
    "Terms",
    "describe",
    "get",
    "names",
    "nll",
    "register",
]
