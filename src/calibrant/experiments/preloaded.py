"""Everything that a run imports, imported: runs are forked from a process that has loaded this and has run nothing."""

import importlib

from calibrant import _torchvision

_torchvision.ensure()  # before anything that imports torchvision
for _name in (
    "calibrant.experiments.work",
    "calibrant.predictions.formats.npz",
    "lightning_fabric.strategies.ddp",
    "scipy.special",
    "sklearn.utils.validation",
):
    importlib.import_module(_name)
