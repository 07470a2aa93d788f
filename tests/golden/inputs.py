"""How the inputs of the golden runs were drawn: `python -m tests.golden.inputs` writes them again, bit for bit."""

import json
from pathlib import Path

import numpy as np

from calibrant import Predictions

FOLDER = Path(__file__).parent / "inputs"
CLASSES = ["cat", "dog", "owl", "fox", "elk"]


def draw(rng, rows, classes, *, scale, sharpness):
    """Logits of a model that is too sure by ``sharpness``, and labels."""
    logits = scale * rng.standard_normal((rows, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return sharpness * logits, labels


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def logits(rng, rows, *, sharpness=1.7, **columns):
    z, y = draw(rng, rows, 5, scale=3.0, sharpness=sharpness)
    site = np.array(["north", "south", "east"])[rng.integers(0, 3, rows)]
    ids = np.array([f"r{i:04d}" for i in range(rows)])
    return Predictions.from_logits(z.astype(np.float32), y, ids=ids, groups={"site": site}, class_names=CLASSES)


def imbalanced(rng, rows):
    """One probability of a rare event, in six digits."""
    z = rng.standard_normal(rows) * 1.6 - 3.6
    return np.round(1 / (1 + np.exp(-1.4 * z)), 6), (rng.random(rows) < 1 / (1 + np.exp(-z))).astype(int)


def masks(rng, images):
    """Segmentations whose pixels are alike within an image; some pixels are void."""
    centre = 2 * rng.standard_normal((images, 4, 1, 1))
    z = centre + 1.5 * rng.standard_normal((images, 4, 8, 8))
    y = (z + rng.gumbel(size=z.shape)).argmax(1)
    y[rng.random(y.shape) < 0.05] = 255
    return Predictions.from_logits((1.5 * z).astype(np.float16), y, kind="segmentation", ignore_index=255)


def linear_model(path):
    """An ONNX model of one layer, with names of its own for input and output."""
    from onnx import TensorProto, checker, helper, numpy_helper, save_model

    rng = np.random.default_rng(17)
    weight = numpy_helper.from_array((2 * rng.standard_normal((4, 5))).astype(np.float32), "weight")
    nodes = [helper.make_node("MatMul", ["features", "weight"], ["scores"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "linear",
        [value("features", TensorProto.FLOAT, ["rows", 4])],
        [value("scores", TensorProto.FLOAT, ["rows", 5])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    checker.check_model(model)
    save_model(model, path)
    features = rng.standard_normal((60, 4)).astype(np.float32)
    np.save(path.with_name("features.npy"), features)


def write(folder=FOLDER):
    """Write every input into a folder."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(20)
    logits(rng, 1200).save(folder / "val.npz")
    logits(rng, 700).save(folder / "test.npz")
    # A second model of the test samples: the same logits, cooler and with noise.
    first = Predictions.open(folder / "test.npz").load()
    z = (first.logits / 1.7 + 0.6 * rng.standard_normal(first.logits.shape)).astype(np.float32)
    facts = {"ids": first.ids, "groups": first.groups, "class_names": CLASSES}
    Predictions.from_logits(z, first.labels, **facts).save(folder / "other.npz")
    for week, noise in enumerate((0.0, 0.0, 0.35), start=1):
        batch = logits(rng, 300)
        y = np.where(rng.random(300) < noise, (batch.labels + 1) % 5, batch.labels)
        ids = np.array([f"w{week}-{i:03d}" for i in range(300)])
        groups = {"site": batch.groups["site"]}
        again = Predictions.from_logits(batch.logits, y, ids=ids, groups=groups, class_names=CLASSES)
        again.save(folder / f"week{week}.npz")
    z, y = draw(rng, 400, 3, scale=2.0, sharpness=1.3)
    lines = ["truth,p_red,p_green,p_blue"]
    for row, label in zip(np.round(softmax(z), 4), y, strict=True):
        lines.append(",".join([("red", "green", "blue")[label], *(f"{p:.4f}" for p in row)]))
    (folder / "colours.csv").write_text("\n".join(lines) + "\n")
    z, y = draw(rng, 400, 2, scale=1.5, sharpness=0.6)
    lines = ["answer,probability"]
    lines += [f"{['no', 'yes'][k]},{p:.6f}" for p, k in zip(softmax(z)[:, 1], y, strict=True)]
    (folder / "binary.csv").write_text("\n".join(lines) + "\n")
    for name, rows in (("rare_val", 3000), ("rare_test", 1500)):
        p, y = imbalanced(rng, rows)
        lines = ["fraud,probability", *(f"{k},{q:.6f}" for q, k in zip(p, y, strict=True))]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    masks(rng, 60).save(folder / "val_masks.npz")
    masks(rng, 20).save(folder / "test_masks.npz")
    confidence = np.round(rng.beta(5, 1.3, 500), 3)
    correct = rng.random(500) < 0.85 * confidence
    rows = [{"confidence": c, "correct": bool(k)} for c, k in zip(confidence.tolist(), correct, strict=True)]
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    z = 2 * rng.standard_normal((12, 20, 30))
    y = (z + rng.gumbel(size=z.shape)).argmax(2)
    Predictions.from_logits(z.astype(np.float32), y, kind="tokens").save(folder / "tokens.npz")
    costs = ["," + ",".join(CLASSES)]
    for i, name in enumerate(CLASSES):
        costs.append(",".join([name, *("0" if i == j else str(1 + (i + j) % 3) for j in range(5))]))
    (folder / "costs.csv").write_text("\n".join(costs) + "\n")
    linear_model(folder / "model.onnx")


if __name__ == "__main__":
    write()
