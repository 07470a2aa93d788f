"""Policies, ONNX models and comparisons for the tests of exports."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
import torch

import calibrant
import calibrant.posthoc
from calibrant.export.graph import OUTPUTS
from calibrant.metrics import Interval
from calibrant.policy import Policy
from calibrant.posthoc import Calibrator, TemperatureScaling, TorchOps
from calibrant.posthoc.scores import Score
from calibrant.promises import Risk, Threshold

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, numpy_helper, T, FLOAT = onnx.helper, onnx.numpy_helper, onnx.TensorProto, onnx.TensorProto.FLOAT

C = 5

SCORES = [
    Score("msp"),
    Score("max_logit"),
    Score("margin", of="calibrated"),
    Score("negative_entropy"),
    Score("energy", of="calibrated"),
    Score("normalised_max_logit", p=3),
    Score("normalised_max_logit", p=2, centre=False),
]

RNG = np.random.default_rng(5)

WEIGHT = (3 * RNG.standard_normal((4, C))).astype(np.float32)

X = RNG.standard_normal((30, 4)).astype(np.float32)

Z = X @ WEIGHT


def calibrators():
    """Every calibrator of the package, in every mode that it has."""
    kinds = {}
    for module in pkgutil.iter_modules(calibrant.posthoc.__path__):
        held = vars(importlib.import_module(f"calibrant.posthoc.{module.name}")).values()
        some = [one for one in held if inspect.isclass(one) and issubclass(one, Calibrator)]
        kinds |= {one.name: one for one in some if not inspect.isabstract(one)}
    found = [None]
    for _, kind in sorted(kinds.items()):
        modes = [{"mode": m} for m in ("top-label", "one-vs-rest")] if "mode" in kind._names() else [{}]
        found += [kind(**mode) for mode in modes]
    return found


def data(rows, classes=C, seed=0):
    """Logits that are too sure by a factor of two, and labels."""
    rng = np.random.default_rng(seed)
    honest = 2 * rng.standard_normal((rows, classes))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    return (2 * honest).astype(np.float32), labels


def at(value):
    """A threshold that was met on 100 samples."""
    coverage, risk = Interval(0.6, 0.5, 0.7), Interval(0.05, 0.02, 0.1)
    return Threshold(float(value), "fixed-sequence", 0.1, 0.95, 100, 60, 3, coverage, risk, None, "Accepts 60.")


def make_policy(score=SCORES[0], limit=0.7, *, calibrator="temperature", classes=C, groups=None, **more):
    if calibrator == "temperature":
        calibrator = TemperatureScaling().fit(*data(400, classes))
    given = {"class_names": None, "takes": "logits", "kind": "classification", "promise": Risk(0.1), **more}
    return Policy.model_construct(  # unchecked: scores and thresholds of all kinds
        num_classes=classes,
        calibrator=calibrator,
        score=score,
        threshold=at(limit),
        groups=None if groups is None else {name: at(value) for name, value in groups.items()},
        group=None if groups is None else "site",
        **given,
    )


def trial_logits(rows=40):
    """Ordinary, tied, saturated and huge logits."""
    z, _ = data(rows, seed=7)
    tied = np.array([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [-3, 2, 2, -3, 2]], dtype=np.float32)
    saturated = np.array([[800, 0, 0, 0, 0], [0, 0, -1e4, 1e4, 0], [1e4, 1e4, 0, 0, 0]], dtype=np.float32)
    return np.concatenate([z, tied, saturated, z[:5] * 1e3])


def run(path, **feeds):
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_outputs()] == list(OUTPUTS)
    assert [one.type for one in session.get_outputs()] == [f"tensor({t})" for t in ("int64", "float", "bool", "float")]
    return dict(zip(OUTPUTS, session.run(None, feeds), strict=True))


def agree(found, policy, logits, group=None):
    """The graph's answers are the policy's, by `decide` and by its module."""
    z = torch.from_numpy(logits)
    with torch.no_grad():
        theirs = policy.module()(z, *([] if group is None else [torch.from_numpy(group)]))
    for name in ("label", "accept"):
        np.testing.assert_array_equal(found[name], getattr(theirs, name).numpy())
    for name in ("confidence", "probabilities"):
        np.testing.assert_allclose(found[name], getattr(theirs, name).numpy(), rtol=0, atol=1e-6)
    if group is None:
        decided = policy.decide(logits)
        np.testing.assert_array_equal(found["label"], decided.labels)
        np.testing.assert_array_equal(found["accept"], decided.accept)
        np.testing.assert_allclose(found["confidence"], decided.confidence, rtol=0, atol=1e-6)


def limit_of(score, calibrator, z):
    """The median score: half of the rows are accepted; below it, where the score says nothing."""
    with torch.no_grad():
        rows = torch.from_numpy(z).double()
        calibrated = rows if calibrator is None else calibrator.apply(TorchOps(), rows)
        scores = score.apply(TorchOps(), rows, calibrated)
        return float(scores.median()) - (1.0 if float(scores.max() - scores.min()) < 1e-9 else 0.0)


def build(nodes, outputs, *, opset=17, inputs=None, weights=None, ir=None, **more):
    """A model of nodes; x [N, 4] goes in unless told otherwise."""
    infos = [helper.make_tensor_value_info(*one) for one in inputs or [("x", T.FLOAT, ["N", 4])]]
    held = [numpy_helper.from_array(value, name) for name, value in (weights or {"w": WEIGHT}).items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info(*one) for one in outputs], held)
    opsets = [helper.make_opsetid("", opset)]
    ir = ir or helper.find_min_ir_version_for(opsets)
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, **more)


def linear(**more):
    """A matrix and nothing else."""
    return build([helper.make_node("MatMul", ["x", "w"], ["z"])], [("z", T.FLOAT, ["N", C])], **more)


def alone(model, feeds, name=None):
    """What a model gives without a policy."""
    return ort.InferenceSession(model.SerializeToString()).run(None if name is None else [name], feeds)[0]


def sklearn_model(kind):
    ensemble, linear_model = pytest.importorskip("sklearn.ensemble"), pytest.importorskip("sklearn.linear_model")
    y = data(200, 3)[1]
    x = np.random.default_rng(2).standard_normal((200, 4)).astype(np.float32) + y[:, None]
    made = {
        "logistic": linear_model.LogisticRegression(),
        "forest": ensemble.RandomForestClassifier(7, max_depth=4, random_state=0),
    }
    return made[kind].fit(x, y), x[:45]


def saved(path, location="w.bin"):
    """A model with its weights in another file."""
    onnx.save_model(linear(), path, save_as_external_data=True, location=location, size_threshold=0)
    return path
