"""The small experiment of the demonstration's study and of the papers' items: a run takes seconds on one core.

Scenes of 16 x 16 pixels, a network of two layers. ``context`` shows the test pictures with every object covered,
``texture`` with colours and patterns never seen, and ``mixed`` pools the latter with the test set.
"""

from __future__ import annotations

from typing import Any

#: A recipe without its method.
EXPERIMENT: dict[str, Any] = {
    "data": {
        "layout": "scenes",
        "val": "val",
        "options": {"context": 0.7, "ambiguous": 0.0, "size": 16},
        "split_options": {"train": {"samples": 1500}, "val": {"samples": 1000}, "test": {"samples": 3000}},
        "also": {
            "context": "context-only",
            "texture": {"options": {"shift": "texture"}},
            "mixed": {"options": {"shift": "texture"}, "pool": True},
        },
    },
    "model": {"name": "mlp", "input_size": [3, 16, 16], "hidden": [256]},
    "optimiser": {"rate": 0.05, "nesterov": True, "weight_decay": 1e-4},
    "schedule": {"name": "cosine", "warmup": 1},
    "training": {"epochs": 20, "batch_size": 50},
}

#: The same for masks: scenes of 24 x 24 pixels, shapes in four families and the background, a small DeepLab v3+.
MASKS: dict[str, Any] = {
    "data": {
        "layout": "scene-masks",
        "val": "val",
        "options": {"context": 0.9, "size": 24, "families": 4},
        "split_options": {"train": {"samples": 700}, "val": {"samples": 150}, "test": {"samples": 300}},
        "pixels": 200,
    },
    "model": {"name": "deeplabv3plus_small", "width": 8},
    "optimiser": {"rate": 0.1, "nesterov": True, "weight_decay": 1e-4, "clip": 2.0},
    "schedule": {"name": "cosine", "warmup": 1},
    "training": {"epochs": 10, "batch_size": 20, "channels_last": True},
}
