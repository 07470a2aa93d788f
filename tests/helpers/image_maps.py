"""Maps of one image by two methods, made by hand."""

import numpy as np

from calibrant.report import ImageMaps, MethodMaps

CLASSES = ("background", "recreational vehicle", "wardrobe")


def method(name: str, seed: int, truth) -> MethodMaps:
    random = np.random.default_rng(seed)
    predicted = random.integers(0, 3, truth.shape)
    confidence = random.random(truth.shape)
    counts = random.integers(0, 30, 15)
    shares = [None if n == 0 else float(random.random()) for n in counts]
    edges = np.linspace(0, 1, 16)
    series = {
        "low": edges[:-1].tolist(), "high": edges[1:].tolist(), "count": counts.tolist(), "confidence": shares,
        "accuracy": shares, "accuracy_low": [None] * 15, "accuracy_high": [None] * 15,
    }  # fmt: skip
    keys = ("accuracy", "mean_iou", "ece", "aurc", "normalised_aurc", "wrong_rank", "normalised_wrong_rank")
    return MethodMaps(
        name, f"runs/{name}", predicted, confidence, (predicted != truth) & (truth >= 0), confidence, 1 - confidence,
        "p = 3: no better than the confidence on the validation data", series,
        {key: 0.05 + 0.1 * k for k, key in enumerate(keys)},
    )  # fmt: skip


def image_maps() -> ImageMaps:
    random = np.random.default_rng(0)
    truth = random.integers(-1, 3, (18, 24))
    picture = random.integers(0, 256, (18, 24, 3), dtype=np.uint8)
    methods = (method("Cross-entropy", 1, truth), method("Label smoothing, alpha = 0.2", 2, truth))
    image = "test/a-street-with-a-name-of-some-length/0001TP_008550.jpg"
    return ImageMaps(image, "camvid test", CLASSES, picture, truth, int((truth >= 0).sum()), methods)
