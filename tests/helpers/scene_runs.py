"""Runs on a few scenes, whose boxes are known, each trained in a second."""

from calibrant.training import check_recipe, train

SCENES = {
    "data": {
        "layout": "scenes",
        "options": {"size": 24},
        "split_options": {"train": {"samples": 40}, "test": {"samples": 30}},
        "also": {"context": "context-only"},
    },
    "model": {"name": "small_cnn", "width": 4},
    "training": {"epochs": 1, "batch_size": 20},
}


def train_scenes(folder, **changes):
    """Train a run into a folder, and give the folder."""
    train(check_recipe(SCENES | changes, "scenes"), folder)
    return folder
