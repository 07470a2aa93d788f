"""A graph must mean the policy's classes: its outputs are held against the model's own labels, and against the fit."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import AdaBoostClassifier, ExtraTreesClassifier, GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, NuSVC

from calibrant import Policy, Predictions
from calibrant.export import export_onnx
from calibrant.export.agreement import find_order
from tests.helpers.errors import facts
from tests.helpers.exports import WEIGHT, C, X, build, linear, make_policy, run

onnx = pytest.importorskip("onnx")
skl2onnx = pytest.importorskip("skl2onnx")
helper, T = onnx.helper, onnx.TensorProto

pytestmark = pytest.mark.filterwarnings("ignore:.*probability.*:FutureWarning")  # of scikit-learn, about SVC

TEXT, NUMBERS = ["zebra", "ant", "mule"], [7, 3, 11]


def samples(classes, names, rows=400):
    rng = np.random.default_rng(classes)
    y = rng.integers(0, classes, rows)
    x = (1.5 * rng.standard_normal((rows, 4)) + 2 * np.eye(4)[y]).astype(np.float32)
    return x, np.array(names)[y]


def converted(model, x, **options):
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    opsets = {"": 17, "ai.onnx.ml": 3}
    return skl2onnx.to_onnx(model, x[:1], options={id(last): options} if options else None, target_opset=opsets)


def both_columns(values):
    return np.stack([-values, values], 1) if values.ndim == 1 else values


def policy_for(model, takes):
    names = tuple(str(name) for name in model.classes_)
    return make_policy(limit=0.6, calibrator=None, classes=len(names), takes=takes, class_names=names)


MODELS = [
    (LogisticRegression(), "decision_function", {"raw_scores": True}),
    (make_pipeline(StandardScaler(), LogisticRegression()), "predict_proba", {"zipmap": False}),
    (RidgeClassifier(), "decision_function", {"raw_scores": True}),
    (ExtraTreesClassifier(5, max_depth=4, random_state=0), "predict_proba", {}),
    (KNeighborsClassifier(4), "predict_proba", {}),
    (AdaBoostClassifier(n_estimators=5), "predict_proba", {}),
    (GradientBoostingClassifier(n_estimators=5), "decision_function", {"raw_scores": True}),
    (OneVsRestClassifier(LogisticRegression()), "predict_proba", {}),
    (make_pipeline(StandardScaler(), NuSVC()), "decision_function", {"raw_scores": True, "zipmap": False}),
    (SVC(probability=True, random_state=0), "predict_proba", {}),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("classes", "names"), [(2, TEXT), (3, NUMBERS), (3, TEXT), (2, NUMBERS)])
@pytest.mark.parametrize(("model", "method", "options"), MODELS)
def test_scikit_learn_s_own_labels_confirm_the_order(model, method, options, classes, names, tmp_path):
    x, y = samples(classes, names)
    model.fit(x[:200], y[:200])
    values = both_columns(getattr(model, method)(x))
    policy = policy_for(model, "probabilities" if method == "predict_proba" else "logits")
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=converted(model, x, **options), inputs=x)
    policy_check, own = done.checks
    assert (policy_check.against, own.against, own.rows) == ("policy", "label output", 400)
    assert own.differing <= 0.1 * 400
    found, expected = run(tmp_path / "m.onnx", X=x), policy.decide(values)
    tied = np.abs(np.diff(np.sort(values, axis=1)[:, -2:])[:, 0]) < 1e-5
    assert (found["label"] == expected.labels)[~tied].all()
    assert (found["accept"] == expected.accept).mean() > 0.99
    assert len(done.not_checked) == 1  # nothing ties the model to the policy
    again = export_onnx(
        policy, tmp_path / "n.onnx", onnx_model=converted(model, x, **options), inputs=x, expected=expected
    )
    assert not again.not_checked


@pytest.mark.parametrize("names", [TEXT, NUMBERS])
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (SVC(kernel="linear"), {"zipmap": False}),
        (NuSVC(), {}),
        (make_pipeline(StandardScaler(), SVC()), {}),
        (SVC(probability=True, random_state=0), {"raw_scores": True}),
    ],
)
def test_reversed_scores_of_two_classes_are_refused(model, options, names, tmp_path):
    """skl2onnx gives them in reverse beside its own right label."""
    x, y = samples(2, names)
    model.fit(x[:200], y[:200])
    policy, proto = policy_for(model, "logits"), converted(model, x, **options)
    expected = Predictions.from_logits(both_columns(model.decision_function(x)), [0] * 400)
    for more, told in (
        ({"inputs": x}, ("of 400 rows", "raw_scores", *policy.class_names)),
        ({"inputs": x, "expected": expected}, ("of 400 rows",)),
        ({}, ("rows",)),  # random inputs show it too
    ):
        with pytest.raises(ValueError, match=facts(*told)):
            export_onnx(policy, tmp_path / "m.onnx", onnx_model=proto, **more)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("method", "options"), [("predict_proba", {}), ("decision_function", {"raw_scores": True})])
def test_truth_values_are_the_0_and_1_that_skl2onnx_writes(method, options, tmp_path):
    x, y = samples(2, [False, True])
    model = LogisticRegression().fit(x[:200], y[:200])
    values, proto = both_columns(getattr(model, method)(x)), converted(model, x, **options)
    policy = policy_for(model, "probabilities" if method == "predict_proba" else "logits")
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=proto, inputs=x, expected=policy.decide(values))
    assert [check.differing for check in done.checks] == [0, 0, 0]
    other = make_policy(limit=0.6, calibrator=None, classes=2, takes=policy.takes, class_names=("True", "False"))
    with pytest.raises(ValueError, match=facts("True, False", "order")):
        export_onnx(other, tmp_path / "n.onnx", onnx_model=proto, inputs=x)


@pytest.mark.slow
def test_a_policy_fitted_on_one_column_is_not_put_behind_minus_z_and_z(tmp_path):
    x, y = samples(2, ["no", "yes"], 1200)
    model = LogisticRegression().fit(x[:200], y[:200])
    z = model.decision_function(x)
    proto = converted(model, x, raw_scores=True)
    one = Policy.fit(Predictions.from_logits(z[200:], y[200:], positive="yes"), target_risk=0.3, calibrator="none")
    with pytest.raises(ValueError, match=facts("one column")):
        export_onnx(one, tmp_path / "m.onnx", onnx_model=proto, inputs=x[200:])
    labels = (y == "yes").astype(int)
    two = Predictions.from_logits(both_columns(z)[200:], labels[200:], class_names=["no", "yes"])
    policy = Policy.fit(two, target_risk=0.3, calibrator="none")
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=proto, inputs=x[200:], expected=two)
    assert [check.differing for check in done.checks[1:]] == [0, 0]
    probabilities = Predictions.from_probabilities(model.predict_proba(x[200:])[:, 1], y[200:], positive="yes")
    policy = Policy.fit(probabilities, target_risk=0.3)
    export_onnx(policy, tmp_path / "p.onnx", onnx_model=converted(model, x), inputs=x[200:], expected=probabilities)


@pytest.mark.slow
def test_other_probabilities_beside_right_labels_need_expected_ones(tmp_path):
    """skl2onnx takes a softmax of -z and z where scikit-learn takes the sigmoid of z: the labels are the same."""
    x, y = samples(2, TEXT, 2200)
    model = LinearDiscriminantAnalysis().fit(x[:200], y[:200])
    labels = np.searchsorted(model.classes_, y[200:])
    val = Predictions.from_probabilities(model.predict_proba(x[200:]), labels, class_names=model.classes_.tolist())
    policy, proto = Policy.fit(val, target_risk=0.3), converted(model, x)
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=proto, inputs=x[200:])
    assert done.checks[1].differing == 0
    assert done.remarks
    with pytest.raises(ValueError, match=facts("of 2,000 rows")):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=proto, inputs=x[200:], expected=val)
    gradient = GradientBoostingClassifier(n_estimators=3).fit(x[:200], y[:200])
    other = converted(gradient, x)
    with pytest.raises(ValueError, match=facts("of 2,000 rows")):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=other, inputs=x[200:], expected=val)


# ---------------------------------------------------------------------- graphs by hand


def labelled(order=range(C), *, names=None, label="label", shift=0, kind=T.INT64, more=()):
    """Outputs in any order of the classes, beside the right label."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["right"]),
        helper.make_node("Gather", ["right", "order"], ["z"], axis=1),
        helper.make_node("ArgMax", ["right"], ["best"], axis=1, keepdims=0),
        helper.make_node("Add", ["best", "shift"], [label if names is None else "moved"]),
    ]
    weights = {"w": WEIGHT, "order": np.array(order, np.int64), "shift": np.array(shift, np.int64)}
    if names is not None:
        weights["names"] = np.array(names)
        nodes.append(helper.make_node("ArrayFeatureExtractor", ["names", "moved"], ["texts"], domain="ai.onnx.ml"))
        nodes.append(helper.make_node("Reshape", ["texts", "flat"], [label]))
        weights["flat"] = np.array([-1])
    outputs = [("z", T.FLOAT, ["N", C]), (label, kind, ["N"]), *more]
    made = build(nodes, outputs, weights=weights)
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return made


ROWS = np.random.default_rng(0).standard_normal((600, 4)).astype(np.float32)


@pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [1, 0, 2, 3, 4], [1, 2, 3, 4, 0]])
def test_outputs_in_another_order_than_the_label_are_refused(order, tmp_path):
    for inputs in (ROWS, None):
        with pytest.raises(ValueError, match=facts("of 600 rows" if inputs is ROWS else "of 34 rows", "order")):
            export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=labelled(order), inputs=inputs)
    names = list("vwxyz")
    with pytest.raises(ValueError, match="v, w, x, y, z"):
        export_onnx(
            make_policy(class_names=tuple(names)),
            tmp_path / "m.onnx",
            onnx_model=labelled(order, names=names, kind=T.STRING),
            inputs=ROWS,
        )
    assert list(tmp_path.iterdir()) == []


def test_two_rare_classes_that_are_swapped_are_found(tmp_path):
    x = ROWS.copy()
    best = (x @ WEIGHT).argmax(1)
    rare = np.flatnonzero(best < 2)[:24]
    x = np.concatenate([x[best >= 2], x[rare]])
    with pytest.raises(ValueError, match=facts(f"{len(rare)} of")):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=labelled([1, 0, 2, 3, 4]), inputs=x)


def test_right_labels_are_confirmed_however_they_are_called(tmp_path):
    models = [
        (None, labelled()),
        (tuple("abcde"), labelled()),  # numbers beside names that are none are positions
        (tuple("abcde"), labelled(names=list("abcde"), kind=T.STRING)),
        (tuple("34567"), labelled(shift=3)),
        (("-1", "0", "1", "2", "3"), labelled(shift=-1)),
        (("1.0", "2.0", "3.0", "4.0", "5.0"), labelled(shift=1)),
        (tuple("12340"), labelled([1, 2, 3, 4, 0])),  # by name, not by position
        (None, labelled(names=np.array([30, 10, 20, 50, 40]))),  # in the order that the graph lists
        (None, labelled(label="class_of_row")),
    ]
    for names, model in models:
        done = export_onnx(make_policy(class_names=names), tmp_path / "m.onnx", onnx_model=model, inputs=ROWS)
        assert [(check.against, check.differing) for check in done.checks[1:]] == [("label output", 0)]
        assert onnx.load(tmp_path / "m.onnx").graph.output[0].name == "label"
        assert "ArrayFeatureExtractor" not in {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}


@pytest.mark.parametrize(
    ("names", "model"),
    [
        (tuple("abcde"), labelled(shift=1)),
        (tuple("34567"), labelled()),
        (tuple("abcde"), labelled(names=list("abcdx"), kind=T.STRING)),
    ],
)
def test_labels_that_are_no_classes_of_the_policy_are_an_error(names, model, tmp_path):
    policy = make_policy(class_names=names)
    with pytest.raises(ValueError, match=facts("--expected")):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, inputs=ROWS)
    expected = policy.decide(ROWS @ WEIGHT)
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, inputs=ROWS, expected=expected)
    assert [check.against for check in done.checks] == ["policy", "expected"]
    assert done.not_checked


def test_numbers_that_are_no_positions_check_nothing_where_the_policy_has_no_names(tmp_path):
    for model, name in ((behind_length("length"), "length"), (labelled(shift=7), "label")):
        done = export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model)
        assert [check.against for check in done.checks] == ["policy"]
        assert any(name in text for text in done.not_checked)
    named = make_policy(class_names=tuple("abcde"))
    with pytest.raises(ValueError, match=facts("length", "--labels none", "--expected")):
        export_onnx(named, tmp_path / "n.onnx", onnx_model=behind_length("length"))
    done = export_onnx(named, tmp_path / "n.onnx", onnx_model=behind_length("length"), labels="none")
    assert [check.against for check in done.checks] == ["policy"]


def behind_length(name):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("ReduceSum", ["x", "one"], ["total"], keepdims=0),
        helper.make_node("Cast", ["total"], [name], to=T.INT64),
    ]
    weights = {"w": WEIGHT, "one": np.array([1])}
    return build(nodes, [("z", T.FLOAT, ["N", C]), (name, T.INT64, ["N"])], weights=weights)


def test_another_threshold_than_one_half_is_no_contradiction(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Add", ["z", "bias"], ["moved"]),
        helper.make_node("ArgMax", ["moved"], ["label"], axis=1, keepdims=0),
    ]
    outputs, policy = [("z", T.FLOAT, ["N", 2]), ("label", T.INT64, ["N"])], make_policy(classes=2, calibrator=None)
    z = ROWS @ WEIGHT[:, :2]
    for bias in (0.5, 4.0):
        weights = {"w": WEIGHT[:, :2], "bias": np.array([0.0, bias], np.float32)}
        model = build(nodes, outputs, weights=weights)
        done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, inputs=ROWS)
        differing = (z.argmax(1) != (z + np.array([0, bias])).argmax(1)).sum()
        assert done.checks[1].differing == differing > 0
    assert differing > 60


def test_a_network_with_other_weights_is_told_from_the_fitted_one(tmp_path):
    """By expected answers surely; by what the policy saw at its fit as a remark; otherwise it is said to be open."""
    rng = np.random.default_rng(1)
    z = ROWS @ WEIGHT
    labels = (z + rng.gumbel(size=z.shape)).argmax(1)
    val = Predictions.from_logits(z, labels)
    policy = Policy.fit(val, target_risk=0.3)
    other = build(
        [helper.make_node("MatMul", ["x", "w"], ["z"])],
        [("z", T.FLOAT, ["N", C])],
        weights={"w": rng.standard_normal((4, C)).astype(np.float32)},
    )
    with pytest.raises(ValueError, match=facts("of 600 rows")):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=other, inputs=ROWS, expected=val)
    assert not list(tmp_path.iterdir())
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=other, inputs=ROWS)
    assert done.remarks
    assert len(done.not_checked) == 2
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), inputs=ROWS)
    assert not done.remarks
    assert len(done.not_checked) == 2
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear())
    assert any("random" in text for text in done.not_checked)
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), inputs=ROWS, expected=val)
    assert done.not_checked == ()


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])
def test_positions_of_the_largest_output_say_nothing_of_the_order_of_the_classes(order, tmp_path):
    """As Keras-like graphs end: an ArgMax of the very output agrees with it whatever the order is."""
    policy = make_policy(class_names=("chat", "chien", "oiseau", "poisson", "tortue"))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0),
    ]
    outputs = [("z", T.FLOAT, ["N", C]), ("label", T.INT64, ["N"])]
    proto = build(nodes, outputs, weights={"w": WEIGHT[:, order]})
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=proto, inputs=X)
    assert [check.against for check in done.checks] == ["policy", "label output"]
    assert any("chat, chien" in text and "positions" in text for text in done.not_checked)
    expected = policy.decide(X @ WEIGHT)
    if order[0]:
        with pytest.raises(ValueError, match=facts("of 30 rows")):
            export_onnx(policy, tmp_path / "n.onnx", onnx_model=proto, inputs=X, expected=expected)
    else:
        done = export_onnx(policy, tmp_path / "n.onnx", onnx_model=proto, inputs=X, expected=expected)
        assert done.not_checked == ()


def test_an_order_is_found_only_beyond_chance():
    rng = np.random.default_rng(0)
    theirs = rng.integers(0, 6, 500)
    assert find_order(theirs, theirs) == ({}, 0)
    order = np.array([3, 1, 2, 0, 4, 5])
    found, more = find_order(order[theirs], theirs)
    assert found == {0: 3, 3: 0}
    assert more == np.isin(theirs, [0, 3]).sum()
    noisy = np.where(rng.random(500) < 0.3, rng.integers(0, 6, 500), theirs)
    assert find_order(noisy, theirs) == ({}, 0)
    assert find_order(np.array([1, 0]), np.array([0, 1])) == ({}, 0)  # two rows are chance


def test_class_names_that_the_caller_knows_must_be_the_policys(tmp_path):
    policy = make_policy(class_names=tuple("abcde"))
    with pytest.raises(ValueError, match="b, a"):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), class_names=list("bacde"))
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), class_names=list("abcde"), inputs=X)
    assert len(done.not_checked) == 1
