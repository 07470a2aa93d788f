"""Studies on the embedded digits."""

from calibrant.experiments import Contender, Study
from calibrant.training.recipe import check_recipe

PLAIN = {
    "title": "digits",
    "data": {"layout": "digits"},
    "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [16]},
    "optimiser": {"rate": 0.1},
    "schedule": {"name": "multistep", "milestones": [6], "warmup": 0.9},
    "training": {"epochs": 9, "batch_size": 128},
}


def recipe(**changed):
    """The recipe with other tables."""
    return check_recipe(PLAIN | changed, "digits")


def study(labels, **settings):
    """A study of methods by their names, with two seeds and one epoch unless told otherwise."""
    plain = settings.pop("recipe", None) or recipe(training={"epochs": 1, "batch_size": 128})
    contenders = {label: Contender(label.partition(":")[0], {}) for label in labels}
    return Study(plain, contenders, settings.pop("seeds", (0, 1)), **settings)
