"""Imported first by the parts that need PyTorch, so that without it they say what to install."""

from calibrant._extras import need

need("this part of Calibrant", "train", "torch")
