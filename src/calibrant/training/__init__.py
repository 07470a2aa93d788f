"""Training by recipe, runs that survive being killed, and what a model says about a data set."""

from calibrant.training.loop import DivergedError, estimate, predict_run, train
from calibrant.training.predicting import predict
from calibrant.training.recipe import Recipe, load

__all__ = ["DivergedError", "Recipe", "estimate", "load", "predict", "predict_run", "train"]
