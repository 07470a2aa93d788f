"""Exported graphs in onnxruntime, against PyTorch and against plain NumPy formulas."""

import importlib
import inspect
import json
import pkgutil

import numpy as np
import pytest
import torch
from torch import nn

import calibrant
import calibrant.posthoc
from calibrant.export import Exported, export_onnx, model_file
from calibrant.export.compare import Comparison
from calibrant.export.graph import OUTPUTS, OnnxOps
from calibrant.metrics.bootstrap.intervals import Interval
from calibrant.posthoc import Calibrator, TemperatureScaling, TorchOps
from calibrant.selective.policy import Policy
from calibrant.selective.scores import Score
from calibrant.selective.thresholds import Threshold

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT

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
    given = {"class_names": None, "takes": "logits", "kind": "classification", **more}
    return Policy(
        num_classes=classes,
        calibrator=calibrator,
        score=score,
        threshold=at(limit),
        groups=None if groups is None else {name: at(value) for name, value in groups.items()},
        group=None if groups is None else "site",
        target_risk=0.1,
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


# ---------------------------------------------------------------------- the drawn formulas


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_every_operation_is_drawn_as_pytorch_computes_it(opset):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 7, C))
    weight, tables = rng.standard_normal((C, 3)), np.sort(rng.standard_normal((C, 6)), axis=1)
    values = rng.standard_normal((C, 7))

    def formulas(ops, x, y):
        one = ops.constant(1.0)
        largest = ops.where(ops.greater_equal(x, y), x, y)
        positive = ops.maximum(ops.absolute(x), ops.constant(np.full(C, 0.1)))
        return [
            ops.add(x, y), ops.sub(x, one), ops.mul(x, y), ops.div(x, positive), ops.power(positive, y), largest,
            ops.exp(x), ops.log(positive), ops.largest(x), ops.top(x, 3), ops.total(x), ops.mean(x),
            ops.columns(x, 1, 4), ops.matmul(x, weight), ops.lookup(x, tables, values), ops.predicted(x), ops.argmax(x),
        ]  # fmt: skip

    ops = OnnxOps(opset, C)
    names = formulas(ops, "a", "b")
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, ["n", C]) for name in "ab"]
    graph = helper.make_graph(ops.nodes, "g", infos, [onnx.ValueInfoProto(name=n) for n in names], ops.constants)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    found = ort.InferenceSession(model.SerializeToString()).run(None, {"a": a, "b": b})
    expected = formulas(TorchOps(), torch.from_numpy(a), torch.from_numpy(b))
    for name, one, other in zip(names, found, expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-13, err_msg=name)
        assert one.shape == tuple(other.shape), name


@pytest.mark.parametrize("tables", [1, 4])
@pytest.mark.parametrize("knots", [0, 1, 2, 3, 7, 8, 100])
def test_lookup_is_a_search_in_sorted_knots(tables, knots):
    rng = np.random.default_rng(knots)
    table = np.sort(rng.integers(-9, 9, (tables, knots)).astype(float), axis=1)
    if knots > 2:
        table[-1, -2:] = np.inf
    values = rng.standard_normal((tables, knots + 1))
    a = np.concatenate([rng.integers(-10, 10, (50, tables)), np.full((1, tables), -np.inf)]).astype(float)
    ops = OnnxOps(17, tables)
    name = ops.lookup("a", table, values)
    info = helper.make_tensor_value_info("a", onnx.TensorProto.DOUBLE, ["n", tables])
    graph = helper.make_graph(ops.nodes, "g", [info], [onnx.ValueInfoProto(name=name)], ops.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = ort.InferenceSession(model.SerializeToString()).run(None, {"a": a})[0]
    places = [np.searchsorted(table[d], a[:, d], side="right") for d in range(tables)]
    np.testing.assert_array_equal(found, np.stack([values[d, place] for d, place in enumerate(places)], axis=1))


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_every_score_and_calibrator_round_trips(score, tmp_path):
    z, y = data(400)
    trial = trial_logits()
    for calibrator in calibrators():
        if calibrator is not None:
            calibrator.fit(z, y)
        policy = make_policy(score, limit_of(score, calibrator, z), calibrator=calibrator)
        done = export_onnx(policy, tmp_path / "policy.onnx")
        assert isinstance(done, Exported)
        assert done.difference <= 1e-5
        for part in (trial, trial[:1], trial.astype(np.float16).clip(-6e4, 6e4).astype(np.float32)):
            found = run(tmp_path / "policy.onnx", logits=part)
            agree(found, policy, part)
        # The energy of logarithms of probabilities is 0 in every row.
        assert found["accept"].any()
        assert found["accept"].all() <= (score.name == "energy")


def test_values_by_numpy(tmp_path):
    policy = make_policy(Score("msp"), 0.8)
    export_onnx(policy, tmp_path / "p.onnx")
    z = data(60, seed=3)[0]
    found = run(tmp_path / "p.onnx", logits=z)

    def softmax(x):
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    probabilities = softmax(z.astype(np.float64) / policy.calibrator.temperature_)
    np.testing.assert_array_equal(found["label"], z.argmax(1))
    np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-7)
    np.testing.assert_allclose(found["confidence"], probabilities.max(1), atol=1e-7)
    # The score is that of the logits as they come.
    np.testing.assert_array_equal(found["accept"], softmax(z.astype(np.float64)).max(1) >= 0.8)


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_segmentation_takes_images_of_any_size(opset, tmp_path):
    policy = make_policy(kind="segmentation", groups={"a": 0.5, "b": 0.9})
    export_onnx(policy, tmp_path / "s.onnx", opset=opset)
    rng = np.random.default_rng(0)
    for shape in ((1, C, 4, 6), (3, C, 7, 2)):
        z = (4 * rng.standard_normal(shape)).astype(np.float32)
        group = np.arange(shape[0]) % 3
        found = run(tmp_path / "s.onnx", logits=z, group=group)
        assert found["label"].shape == (shape[0], *shape[2:])
        assert found["probabilities"].shape == shape
        agree(found, policy, z, group)
        if shape[0] == 3:
            assert found["accept"][:2].any()
            assert not found["accept"][2].any()


def test_groups_have_thresholds_of_their_own(tmp_path):
    policy = make_policy(groups={"a": -np.inf, "b": 0.9, "c": np.inf}, class_names=("cat", "dog", "eel", "fox", "gnu"))
    done = export_onnx(policy, tmp_path / "g.onnx")
    assert [one.name for one in done.inputs] == ["logits", "group"]
    z = data(30, seed=2)[0]
    for group, name in ((0, "a"), (1, "b"), (2, "c"), (-1, "other"), (3, "other"), (10**12, "other")):
        found = run(tmp_path / "g.onnx", logits=z, group=np.full(30, group))
        np.testing.assert_array_equal(found["accept"], policy.decide(z, np.full(30, name)).accept)
    assert run(tmp_path / "g.onnx", logits=z, group=np.zeros(30, np.int64))["accept"].all()
    facts = {one.key: one.value for one in onnx.load(tmp_path / "g.onnx").metadata_props}
    assert facts["calibrant.policy"] == policy.summary
    assert facts["calibrant.version"] == calibrant.__version__
    assert json.loads(facts["calibrant.class_names"]) == ["cat", "dog", "eel", "fox", "gnu"]
    assert json.loads(facts["calibrant.group_names"]) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["max_logit", "msp", "energy"])
def test_rows_that_are_not_numbers_are_never_accepted(name, tmp_path):
    export_onnx(make_policy(Score(name), 0.1), tmp_path / "p.onnx")
    z = np.array([[3, 1, 0, 0, 0], [np.nan, 9, 0, 0, 0], [9, 0, 0, 0, np.nan], [np.inf, 0, 0, 0, 0]], np.float32)
    assert run(tmp_path / "p.onnx", logits=z)["accept"].tolist() == [True, False, False, False]


def test_probabilities_are_taken_where_the_policy_takes_them(tmp_path):
    policy = make_policy(takes="probabilities")
    done = export_onnx(policy, tmp_path / "p.onnx")
    assert [one.name for one in done.inputs] == ["model_probabilities"]
    p = torch.from_numpy(trial_logits()).double().softmax(1).float().numpy()
    agree(run(tmp_path / "p.onnx", model_probabilities=p), policy, p)


# ---------------------------------------------------------------------- torch.export


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_the_module_can_be_exported_by_torch(score):
    z, y = data(400)
    # Every score once, and every calibrator once with the first of them.
    for calibrator in calibrators() if score is SCORES[0] else [TemperatureScaling()]:
        if calibrator is not None:
            calibrator.fit(z, y)
        policy = make_policy(score, limit_of(score, calibrator, z), calibrator=calibrator)
        batch = {"inputs": {0: torch.export.Dim("batch")}}
        program = torch.export.export(policy.module(), (torch.from_numpy(z[:7]),), dynamic_shapes=batch)
        trial = torch.from_numpy(trial_logits())
        for one, other in zip(program.module()(trial), policy.module()(trial), strict=True):
            assert torch.equal(one, other)


# ---------------------------------------------------------------------- models of PyTorch


class Net(nn.Module):
    def __init__(self, classes=C, key=None):
        super().__init__()
        self.conv, self.key = nn.Conv2d(3, 8, 3, padding=1), key
        self.norm, self.last = nn.BatchNorm2d(8), nn.Linear(8, classes)

    def forward(self, x):
        x = nn.functional.dropout(self.norm(self.conv(x)).relu(), 0.5, self.training)
        z = 6 * self.last(x.mean((2, 3)))
        return z if self.key is None else {"features": x, self.key: z}


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, C, 1)

    def forward(self, x):
        return 5 * nn.functional.interpolate(self.up(self.down(x).relu()), x.shape[-2:], mode="bilinear")


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, C)

    def forward(self, x):
        return self.last(x) if x.sum() > 0 else -self.last(x)


def test_a_torch_model_and_its_policy_become_one_graph(tmp_path, capfd):
    torch.manual_seed(0)
    model = Net(key="out").train()
    policy = make_policy(limit=0.3, groups={"a": 0.3, "b": 0.35})
    x = torch.randn(70, 3, 6, 5)
    done = export_onnx(policy, tmp_path / "m.onnx", model=model, output="out", inputs={"x": x, "group": [0, 1] * 35})
    assert model.training
    assert model.norm.training
    assert (done.rows, done.opset) == (71, 18)
    assert [one.name for one in done.inputs] == ["input", "group"]
    assert capfd.readouterr() == ("", "")
    model.eval()
    for rows in (1, 29):
        x, group = torch.randn(rows, 3, 6, 5), torch.randint(-1, 3, (rows,))
        with torch.no_grad():
            theirs = policy.module()(model(x)["out"], group)
        found = run(tmp_path / "m.onnx", input=x.numpy(), group=group.numpy())
        np.testing.assert_array_equal(found["label"], theirs.label)
        np.testing.assert_array_equal(found["accept"], theirs.accept)
        np.testing.assert_allclose(found["probabilities"], theirs.probabilities, atol=1e-5)
    with pytest.raises(ValueError, match=r"one tensor, got a mapping with features, out: name an output"):
        export_onnx(policy, tmp_path / "n.onnx", model=model, input_shape=(3, 6, 5))
    with pytest.raises(ValueError, match=r"no output 'logits', it returns a mapping with features, out"):
        export_onnx(policy, tmp_path / "n.onnx", model=model, output="logits", input_shape=(3, 6, 5))


def test_a_segmentation_model_keeps_images_of_any_size(tmp_path):
    torch.manual_seed(0)
    model, policy = Dense().eval(), make_policy(kind="segmentation", limit=0.4)
    done = export_onnx(policy, tmp_path / "s.onnx", model=model, input_shape=(3, 16, 12))
    assert done.rows == (34 + 4) * 16 * 12  # and one of twice the size
    assert not done.remarks
    x = torch.randn(2, 3, 20, 14)
    with torch.no_grad():
        theirs = policy.module(model)(x)
    found = run(tmp_path / "s.onnx", input=x.numpy())
    assert found["label"].shape == (2, 20, 14)
    np.testing.assert_allclose(found["probabilities"], theirs.probabilities, atol=1e-5)


def test_a_segmentation_model_of_one_size_says_so(tmp_path):
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.up = nn.Linear(12, 12), nn.Conv2d(3, C, 1)

        def forward(self, x):
            return self.up(self.mix(x.flatten(2)).reshape(-1, 3, 4, 3))

    done = export_onnx(make_policy(kind="segmentation"), tmp_path / "s.onnx", model=Fixed(), input_shape=(3, 4, 3))
    assert done.remarks == ("The graph takes images of 4 x 3 only, or not of twice that size: nor does the model.",)


def test_a_half_precision_model_differs_by_rounding_alone(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, C)).half()
    done = export_onnx(make_policy(limit=0.3), tmp_path / "h.onnx", model=model, input_shape=(6,))
    assert done.rows == 34
    assert done.difference <= 1e-5
    assert not done.undecided or "rounding of the logits explains" in done.remarks[-1]
    assert run(tmp_path / "h.onnx", input=np.ones((3, 6), np.float16))["label"].shape == (3,)


def test_what_pytorch_cannot_export_is_one_sentence(tmp_path, capfd):
    with pytest.raises(ValueError, match=r"^PyTorch cannot export the model to ONNX: .*data-dependent") as caught:
        export_onnx(make_policy(), tmp_path / "b.onnx", model=Branching(), input_shape=(4,))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_torch_models_that_do_not_fit_are_refused(tmp_path):
    for model, shape, text in (
        (Net(), None, "give input_shape"),
        (Net(classes=7), (3, 6, 5), r"takes logits \[N, 5\], the model gives \[2, 7\]"),
        (Dense(), (3, 6, 5), r"is for classification"),
        (Net(), (4, 6, 5), r"does not take inputs \[N, 4, 6, 5\]"),
        (lambda x: x, (3,), r"must be a torch.nn.Module, got function"),
    ):
        with pytest.raises(ValueError, match=text):
            export_onnx(make_policy(), tmp_path / "x.onnx", model=model, input_shape=shape)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- the check itself


@pytest.mark.parametrize(
    ("wrong", "score"),
    [
        ({"exp": lambda ops, a: ops.node("Exp", ops.mul(a, ops.constant(1.001)))}, Score("max_logit")),
        ({"greater_equal": lambda ops, a, b: ops.node("Greater", a, b)}, Score("max_logit")),
        ({"argmax": lambda ops, a: ops.node("ArgMax", a, axis=1, select_last_index=1)}, Score("msp")),
        ({"constant": lambda ops, v: ops.held(np.asarray(v) * (1 + 1e-6))}, Score("negative_entropy")),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_a_wrong_graph_is_noticed_and_not_written(wrong, score, tmp_path, monkeypatch):
    limit = -0.1 if score.name == "negative_entropy" else 0.5
    groups = {"a": 0.5, "b": 0.6} if "greater_equal" in wrong else None
    policy = make_policy(score, limit, calibrator="temperature" if "exp" in wrong else None, groups=groups)
    for name, method in wrong.items():
        monkeypatch.setattr(OnnxOps, name, method)
    with pytest.raises(
        ValueError, match=r"does not do what the policy does in \d+ of \d+ rows.*row \d+ has label.*largest"
    ):
        export_onnx(policy, tmp_path / "w.onnx")
    assert not list(tmp_path.iterdir())


def test_rounding_of_logits_is_counted_and_other_differences_are_not_excused():
    policy = make_policy(Score("max_logit"), 1.0, calibrator=None)
    z = np.array([[1.0, 0, 0, 0, 0], [2.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0]], np.float32)

    def compared(ours, theirs):
        one = Comparison(policy)
        graph = [x.numpy() for x in policy.module()(torch.from_numpy(ours))]
        one.add(graph, torch.from_numpy(theirs), None, lambda: ours.astype(np.float64))
        return one

    nearly = z + np.array([[-1e-6, 0, 0, 0, 0], [1e-6, 0, 0, 0, 0], [0, 1e-6, 0, 0, 0]], np.float32)
    found = compared(z, nearly).result()  # the first is accepted by one only, the last has another label
    assert (found.rows, found.undecided) == (3, 2)
    assert 0 < found.difference < 1e-5
    far = z + np.array([[-1e-3, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], np.float32)
    with pytest.raises(
        ValueError, match=r"in 1 of 3 rows.*row 0 has label 0 instead of 0.*accept True instead of False"
    ):
        compared(z, far).result()


def test_the_file_is_written_aside_and_replaces_the_old_one(tmp_path):
    (tmp_path / "p.onnx").write_text("old")
    done = export_onnx(make_policy(), tmp_path / "p.onnx")
    assert done.path == tmp_path / "p.onnx"
    assert [p.name for p in tmp_path.iterdir()] == ["p.onnx"]
    onnx.checker.check_model(str(tmp_path / "p.onnx"), full_check=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        export_onnx(make_policy(), tmp_path / "file" / "p.onnx")


def test_without_the_extra_the_pip_line_is_named(tmp_path, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnxruntime" else there(name))
    with pytest.raises(ValueError, match=r"export_onnx needs onnxruntime: pip install 'calibrant\[export\]'"):
        export_onnx(make_policy(), tmp_path / "p.onnx")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"opset": 12}, "opset must be a whole number from 13"),
        ({"opset": True}, "opset must be"),
        ({"output": "x"}, "output goes with a model"),
        ({"inputs": np.ones((2, 3))}, "inputs goes with a model"),
        ({"model": Branching(), "onnx_model": "x.onnx"}, "both given"),
        ({"model": Branching(), "input_shape": (0,)}, "whole numbers above 0"),
        ({"onnx_model": "x.onnx", "opset": 17}, "has its own"),
    ],
)
def test_arguments_that_do_not_go_together(more, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        export_onnx(make_policy(), tmp_path / "p.onnx", **more)


def test_the_path_and_the_policy_are_checked(tmp_path):
    with pytest.raises(ValueError, match=r"written as \.onnx, got '\.pt'"):
        export_onnx(make_policy(), tmp_path / "p.pt")
    with pytest.raises(ValueError, match="must be a Policy, got dict"):
        export_onnx({}, tmp_path / "p.onnx")
    assert model_file.LARGEST < 2**31
