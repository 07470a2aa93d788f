"""A VOC folder of drawn objects, red and blue rectangles, with boxes that say no area; and a recipe to detect them."""

import numpy as np
from PIL import Image

from calibrant.models import build
from tests.helpers.box_files import write, xml

COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}

RECIPE = """
title = "Drawn objects"
[data]
layout = "voc"
val = "val"
test = "val"
train_steps = [{ step = "resize", size = 32, most = 48 }, { step = "flip" }]
steps = [{ step = "resize", size = 32, most = 48 }]
[model]
name = "small_resnet"
width = 8
[detection]
anchors = [8, 16]
aspects = [1.0]
frozen_stages = 0
candidates = [100, 60]
proposals = [40, 20]
regions = 16
pooled = 4
[optimiser]
rate = 0.02
[schedule]
name = "step"
every = 4
[training]
epochs = 2
batch_size = 8
eval_batch_size = 8
"""


def drawn_voc(root, train=24, val=8, seed=0):
    """Images of several sizes with one or two objects; one has a box without area, one shows nothing."""
    random = np.random.default_rng(seed)
    names = [f"i{number:03}" for number in range(train + val)]
    for number, name in enumerate(names):
        width, height = (48, 40) if number % 3 else (40, 56)
        pixels = random.integers(90, 130, (height, width, 3), dtype=np.uint8)
        objects = []
        for _ in range(0 if number == 1 else 1 + number % 2):
            side = int(random.integers(10, 20))
            x, y = int(random.integers(0, width - side)), int(random.integers(0, height - side))
            colour = str(random.choice(list(COLOURS)))
            pixels[y : y + side, x : x + side] = COLOURS[colour]
            objects.append((colour, x, y, x + side, y + side))
        if number == 2:
            objects.append(("red", 5, 5, 5, 20))
        (root / "JPEGImages").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / f"JPEGImages/{name}.jpg", quality=95)
        write(root / f"Annotations/{name}.xml", xml(objects, f"{name}.jpg", (width, height)))
    write(root / "ImageSets/Main/train.txt", "".join(f"{name}\n" for name in names[:train]))
    write(root / "ImageSets/Main/val.txt", "".join(f"{name}\n" for name in names[train:]))
    return root


def weights_file(path, seed=0, **options):
    """A file of a small ResNet's weights, as another library would save them."""
    from safetensors.torch import save_file

    save_file(build("small_resnet", num_classes=5, seed=seed, **({"width": 8} | options)).state_dict(), str(path))
    return path
