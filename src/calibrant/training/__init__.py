"""Training by recipe, runs that survive being killed, and what a model says about a data set."""

from calibrant._imports import needs_torch
from calibrant.training.loop import train
from calibrant.training.named import shorten
from calibrant.training.predicting import predict
from calibrant.training.preparing import prepare_run
from calibrant.training.processes import make_fabric
from calibrant.training.recipe import Recipe, check_recipe, load, table_of
from calibrant.training.records import DamagedError, Value, check_metric, read_record
from calibrant.training.rehearsal import rehearse
from calibrant.training.run_folder import FAILED, RESULT, InUseError, RunFolder, environment
from calibrant.training.runs import estimate, example_inputs, load_model, predict_run
from calibrant.training.sets import Sets, load_sets
from calibrant.training.settings import LARGEST_SEED, ModelSettings, Resources, SetName
from calibrant.training.stepping import DivergedError

__all__ = ["DivergedError", "Recipe", "estimate", "load", "load_model", "predict", "predict_run", "train"]
