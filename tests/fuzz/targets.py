"""What is fuzzed: how a small valid case of each format is made, and how it is loaded."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant import Policy, Predictions
from tests.helpers.data_trees import TREES

Case = Callable[[Path], None]
Loader = Callable[[Path], Any]


@dataclass(frozen=True)
class Target:
    """A kind of file.

    Attributes:
        make: writes a valid case into a folder that does not exist yet.
        load: reads the case; gives something that can be compared, or None.
        checksummed: whether a single flipped bit is always noticed, or changes nothing.
        ignored: endings of files that are not damaged.
    """

    make: Case
    load: Loader
    checksummed: bool = False
    ignored: tuple[str, ...] = ()

    def damages(self, path: Path) -> bool:
        """Whether a file of the case may be damaged."""
        return not path.name.endswith(self.ignored or "\0")


TARGETS: dict[str, Target] = {}


def _predictions(holds: str = "logits") -> Predictions:
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(23, 3)).astype(np.float32)
    facts: dict[str, Any] = {
        "ids": np.arange(23) * 2,
        "groups": {"site": np.array(["north", "süd"])[rng.integers(0, 2, 23)]},
        "objectness": rng.random(23),
    }
    labels = rng.integers(0, 3, 23)
    if holds == "confidence":
        return Predictions.from_confidence(rng.random(23), labels > 0, **facts)
    facts |= {"class_names": ["cat", "dog", "bird"], "split": "test"}
    if holds == "logits":
        return Predictions.from_logits(logits, labels, **facts)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return Predictions.from_probabilities(shares, labels, **facts)


def _contents(predictions: Predictions) -> Any:
    """Everything in it, comparable; each way of reading has its own checks, and gives the same."""
    found = []
    for memory in (predictions, predictions.load(), predictions.samples(slice(None))):
        columns = {name: getattr(memory, name) for name in ("logits", "probabilities", "confidence", "correct",
                                                            "labels", "ids", "objectness")} | memory.groups  # fmt: skip
        values = {name: (str(array.dtype), array.tolist()) for name, array in columns.items() if array is not None}
        found.append((values, memory.class_names, memory.split, memory.kind, memory.ignore_index))
    assert found[0] == found[1] == found[2]
    return found[0]


def _add_predictions(name: str, file: str, *, checksummed: bool = False, **case: Any) -> None:
    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        _predictions(**case).save(folder / file)
        if name.endswith("-gz"):
            (folder / f"{file}.gz").write_bytes(gzip.compress((folder / file).read_bytes()))
            (folder / file).unlink()

    def load(folder: Path) -> Any:
        ending = f"{file}.gz" if name.endswith("-gz") else file
        return _contents(Predictions.open(folder / ending, groups=["site"] if "csv" in file else None))

    TARGETS[name] = Target(make, load, checksummed)


_add_predictions("npz", "x.npz", checksummed=True)
_add_predictions("npz-confidence", "x.npz", checksummed=True, holds="confidence")
_add_predictions("npy", "x_probabilities.npy", checksummed=True, holds="probabilities")
_add_predictions("parquet", "x.parquet", checksummed=True)
_add_predictions("safetensors", "x.safetensors", checksummed=True)
_add_predictions("csv", "x.csv")
_add_predictions("jsonl", "x.jsonl")
_add_predictions("csv-gz", "x.csv", checksummed=True, holds="probabilities")


def _make_compressed(folder: Path) -> None:
    folder.mkdir(parents=True)
    predictions = _predictions()
    np.savez_compressed(folder / "x.npz", logits=np.asfortranarray(predictions.logits), labels=predictions.labels,
                        class_names=np.array(predictions.class_names))  # fmt: skip


TARGETS["npz-compressed"] = Target(_make_compressed, lambda f: _contents(Predictions.open(f / "x.npz")), True)


def _add_table() -> None:
    def make(folder: Path) -> None:
        rng = np.random.default_rng(3)
        columns = {"p_1": rng.normal(size=9), "p_2": rng.normal(size=9), "labels": ["1", "2", "1"] * 3}
        folder.mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / "x_logits.parquet", row_group_size=4)

    def load(folder: Path) -> Any:
        return _contents(Predictions.open(folder / "x_logits.parquet", columns={"logits": "p_*"}))

    TARGETS["parquet-table"] = Target(make, load)


_add_table()


def data_for_policies() -> Predictions:
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((500, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return Predictions.from_logits(
        logits, labels, class_names=list("wxyz"), groups={"site": rng.choice(["a", "b"], 500)}
    )


#: What policies are fitted with: every calibrator, promise and kind of sets.
POLICIES: dict[str, dict[str, Any]] = {
    **{name: {"target_risk": 0.3, "calibrator": name} for name in ("temperature", "ensemble", "vector", "isotonic")},
    "groups": {"target_risk": 0.3, "group": "site", "calibrator": "none", "score": "normalised_max_logit"},
    "raps": {"target_risk": 0.3, "calibrator": "none", "sets": 0.9, "set_method": "raps"},
    "classes": {"target_risk": 0.3, "calibrator": "none", "sets": 0.9, "set_method": "class-conditional"},
    "group-class": {"target_risk": 0.4, "group": "site", "calibrator": "none", "by_class": True},
    "costs": {"calibrator": "none", "costs": 1 - np.eye(4), "target_cost": 0.6},
    "recall": {"calibrator": "none", "promise": "recall=x:0.8"},
}


def _make_policy(folder: Path, name: str = "temperature") -> None:
    folder.mkdir(parents=True)
    Policy.fit(data_for_policies(), **POLICIES[name]).save(folder / "policy.json")


def _load_policy(folder: Path) -> Any:
    policy = Policy.load(folder / "policy.json")
    rows = np.array([[3.0, 1.0, 0.0, 0.5], [0.1, 0.0, 0.2, 0.0], [1e4, -1e4, 0.0, 1.0]])
    decision = policy.decide(rows, None if policy.group is None else ["a"] * 3)
    assert np.isfinite(decision.confidence).all()
    values = [np.asarray(part).tolist() for part in (decision.labels, decision.confidence, decision.accept)]
    return values, policy.class_names, policy.target_risk, policy.summary


for _name in POLICIES:
    TARGETS[f"policy-{_name}"] = Target(functools.partial(_make_policy, name=_name), _load_policy, checksummed=True)


def _make_sketch(folder: Path) -> None:
    from calibrant.metrics import ConfidenceSketch

    folder.mkdir(parents=True)
    sketch = ConfidenceSketch()
    predictions = _predictions()
    sketch.update(predictions.logits, predictions.labels)
    sketch.save(folder / "sketch.safetensors")


def _load_sketch(folder: Path) -> Any:
    from calibrant.metrics import ConfidenceSketch

    values = ConfidenceSketch.load(folder / "sketch.safetensors").compute()
    return sorted((name, repr(value)) for name, value in values.items())


TARGETS["sketch"] = Target(_make_sketch, _load_sketch, checksummed=True)


RECIPE = """\
title = "A recipe"
seed = 3

[data]
layout = "digits"
hold_out = { fraction = 0.2 }
train_steps = [{ step = "random_crop", size = [8, 8], padding = 1 }, { step = "flip" }]

[model]
name = "mlp"
input_size = [3, 8, 8]
hidden = [4]

[loss]
name = "acls"
margin = 6.0

[mixing]
name = "mixup"

[optimiser]
name = "sgd"
rate = 0.1

[schedule]
name = "step"

[training]
epochs = 1
batch_size = 512
"""


def _make_recipe(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE.replace('[schedule]\nname = "step"\n\n', ""), encoding="utf-8")


def _load_recipe(folder: Path) -> Any:
    from calibrant.training.recipe import load

    return load(folder / "recipe.toml").key


TARGETS["recipe"] = Target(_make_recipe, _load_recipe)


def _make_run(folder: Path) -> None:
    from calibrant.training import train
    from calibrant.training.recipe import load

    _make_recipe(folder.parent / "recipe")
    recipe = load(folder.parent / "recipe" / "recipe.toml", ["training.keep=best"])
    train(recipe, folder)
    (folder / "result.json").rename(folder.parent / "result.json")  # an unfinished run: --resume reads all of it


def _load_run(folder: Path) -> Any:
    """What --resume, predict and export read of a run folder; nothing is computed that a damage could prolong."""
    from calibrant.training.checkpoints import restore_run
    from calibrant.training.classification import Classification
    from calibrant.training.datasets import load_sets
    from calibrant.training.distributed import make_fabric
    from calibrant.training.finished_run import load_model
    from calibrant.training.run import prepare_run
    from calibrant.training.run_folder import RunFolder

    run = RunFolder(folder)
    recipe = run.recipe()
    json.dumps(run.entries())
    load_model(folder)
    restore_run(prepare_run(recipe, make_fabric(recipe, "cpu", 1, 1), load_sets(recipe), Classification()), run)
    if (folder / "result.json").exists():
        run.result()


TARGETS["run"] = Target(_make_run, _load_run, ignored=(".npz", ".calibrant-lock", ".lock", "environment.json"))


def _make_onnx(folder: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    _make_policy(folder)
    weights = numpy_helper.from_array(np.random.default_rng(5).normal(size=(4, 4)).astype(np.float32), "weights")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["logits"])], "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 4])], [weights],
    )  # fmt: skip
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "model.onnx")


def _load_onnx(folder: Path) -> Any:
    from calibrant.export import export_onnx

    policy = Policy.load(folder / "policy.json")
    export_onnx(policy, folder / "out.onnx", onnx_model=folder / "model.onnx")


TARGETS["onnx"] = Target(_make_onnx, _load_onnx, ignored=("policy.json", "out.onnx"))


def _make_inputs(folder: Path) -> None:
    folder.mkdir(parents=True)
    np.savez(folder / "x.npz", x=np.arange(12.0).reshape(3, 4), n=np.arange(3))


def _load_inputs(folder: Path) -> Any:
    from calibrant.export.inputs import read_inputs

    arrays = read_inputs(folder / "x.npz")
    assert all(array.dtype.kind in "fiub" for array in arrays.values())
    return {name: array.tolist() for name, array in arrays.items()}


TARGETS["inputs"] = Target(_make_inputs, _load_inputs, checksummed=True)


def _make_words(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "vectors.txt").write_text("the 1 2.5\na -3 4e-2\n. . 5 6\n")
    (folder / "words.json").write_text('{"words": ["<pad>", "<unk>", "the", "a"]}')


def _load_words(folder: Path) -> None:
    from calibrant.data import Vocabulary, read_glove

    words = Vocabulary.from_json((folder / "words.json").read_bytes().decode("utf-8", "surrogateescape"))
    assert words.words[:2] == ("<pad>", "<unk>")
    assert np.isfinite(read_glove(folder / "vectors.txt", Vocabulary.build(["the a"]), 2).values).all()


TARGETS["words"] = Target(_make_words, _load_words)


def _add_data(name: str, write: Callable[[Path], Path], layout: str, split: str, options: dict[str, Any]) -> None:
    def load(folder: Path) -> None:
        from calibrant.data import UnreadableError, read
        from tests.fuzz.engine import flaw_of

        (root,) = folder.iterdir()
        root = next(root.iterdir()) if layout == "arrays" else root
        for on_error in ("skip", "raise"):
            data = read(root, split, layout=layout, on_error=on_error, **options)
            for number in range(len(data)):
                try:
                    assert -1 <= data[number].label < len(data.classes)
                except (UnreadableError, OSError) as error:
                    if flaw_of(error):
                        raise AssertionError(flaw_of(error)) from error

    TARGETS[f"data-{name}"] = Target(lambda folder: write(folder / "set"), load)


for _name, _tree in TREES.items():
    _add_data(_name, *_tree)
