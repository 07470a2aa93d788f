"""Three finished runs on drawn scenes with masks, of a second each."""

from pathlib import Path

from calibrant.training import check_recipe, train

PLAIN = {
    "data": {
        "layout": "scene-masks",
        "val": "val",
        "options": {"size": 16, "families": 2, "ambiguous": 0.3},
        "split_options": {"train": {"samples": 60}, "val": {"samples": 40}, "test": {"samples": 40}},
        "pixels": 60,
    },
    "model": {"name": "deeplabv3plus_small", "width": 2},
    "training": {"epochs": 1, "batch_size": 10},
}


def trained_runs(folder: Path) -> dict[str, Path]:
    """Folders of a run with cross-entropy and of two with label smoothing."""
    losses = {"ce": {"name": "ce"}, "ls": {"name": "ls", "alpha": 0.05}, "ls, alpha=0.2": {"name": "ls", "alpha": 0.2}}
    for name, loss in losses.items():
        train(check_recipe(PLAIN | {"loss": loss}, "masks"), folder / name)
    return {name: folder / name for name in losses}
