"""Training by recipe, runs that survive being killed, and what a model says about a data set."""

from calibrant import _needs_torch  # noqa: F401
from calibrant.training.loop import train
from calibrant.training.predicting import predict
from calibrant.training.recipe import Recipe, load
from calibrant.training.runs import estimate, load_model, predict_run
from calibrant.training.stepping import DivergedError

__all__ = ["DivergedError", "Recipe", "estimate", "load", "load_model", "predict", "predict_run", "train"]
