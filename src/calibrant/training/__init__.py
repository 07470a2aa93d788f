"""Training by recipe, runs that resume after any interruption, and predictions of trained models."""

from calibrant.base.extras import needs_torch
from calibrant.training.classification import Classification
from calibrant.training.datasets import DataSets, evaluation_pipeline, load_sets, training_pipeline
from calibrant.training.distributed import make_fabric
from calibrant.training.finished_run import (
    LastEpoch,
    OpenedRun,
    example_inputs,
    last_epoch,
    load_model,
    open_run,
    predict_image,
    predict_mean,
    predict_run,
)
from calibrant.training.loop import estimate, train
from calibrant.training.prediction import predict
from calibrant.training.recipe import Recipe, check_recipe, differences, load, load_method, replace_settings
from calibrant.training.records import DamagedError, Value, check_metric, read_record
from calibrant.training.run import DivergedError, EventLog, MicroBatch, Run, Task, dtype_of, prepare_run, unwrap
from calibrant.training.run_folder import (
    ABSTENTION,
    DETECTIONS,
    FAILED,
    MODEL,
    RESULT,
    InUseError,
    RunFolder,
    environment,
)
from calibrant.training.settings import REPAIRS, TUNED_FOR, MethodSettings, ModelSettings, Repair, Resources, SetName

__all__ = [
    "DivergedError", "Recipe", "estimate", "load", "load_model", "predict", "predict_mean", "predict_run", "train",
]  # fmt: skip
