"""The scikit-learn estimator: its contract, its labels, its promise on fresh data, and its graph in onnxruntime."""

import pickle
import sys
import warnings

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom
from sklearn.base import clone, is_classifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from calibrant.base import extras
from calibrant.sklearn import SelectiveClassifier
from tests.helpers.errors import facts

pytestmark = pytest.mark.slow

TEXT = np.array(["ant", "bee", "cicada"])


#: No choice of calibrator and score: quick, and all samples are for the threshold.
PLAIN = {"calibrator": "none", "confidence_score": "msp"}


def samples(classes, n=900, names=None):
    """Three parts of features and labels, to train on, to fit on, to look at; a linear model is the truth."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3 * n, 4)).astype(np.float32)
    steepness = 1.3 if classes == 2 else 3.0  # a tenth to a fifth of the best answers are wrong
    y = (steepness * x @ rng.normal(size=(4, classes)) + rng.gumbel(size=(3 * n, classes))).argmax(1)
    y = y if names is None else np.asarray(names)[y]
    return [(x[part::3], y[part::3]) for part in range(3)]


def fitted(classes=3, names=None, model=None, **settings):
    train, held_out, fresh = samples(classes, names=names)
    estimator = (LogisticRegression() if model is None else model).fit(*train)
    return SelectiveClassifier(estimator, **{"target_risk": 0.1} | PLAIN | settings).fit(*held_out), fresh


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", [LogisticRegression(), RandomForestClassifier(20, random_state=0), LinearSVC()])
def test_answers_are_the_most_probable_class_where_the_policy_accepts(classes, model):
    selective, (x, _) = fitted(classes, model=clone(model), calibrator="vector")
    policy, estimator = selective.policy_, selective.estimator_
    if hasattr(model, "predict_proba"):
        values = estimator.predict_proba(x)
    else:
        values = estimator.decision_function(x)
        values = np.stack([np.zeros(len(x)), values], 1) if classes == 2 else values
    accept = policy.decide(values).accept
    assert 0 < accept.sum() < len(x)
    answers, probabilities = selective.predict(x), selective.predict_proba(x)
    assert probabilities.shape == (len(x), classes)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert np.array_equal(answers != -1, accept)
    assert np.array_equal(answers[accept], estimator.classes_[probabilities.argmax(1)][accept])
    labels, confidence, accepted = selective.decide(x)
    assert np.array_equal(accepted, accept)
    assert np.array_equal(labels, probabilities.argmax(1))
    np.testing.assert_allclose(confidence, probabilities.max(1), rtol=1e-12)


def test_score_is_the_accuracy_of_the_answers():
    selective, (x, y) = fitted(names=TEXT)
    answers = selective.predict(x)
    right = [answer == truth for answer, truth in zip(answers, y, strict=True) if answer is not None]
    assert selective.score(x, y) == pytest.approx(sum(right) / len(right))
    assert selective.score(x, y) > selective.estimator.score(x, y)
    assert selective.score(x, np.full(len(y), "wasp")) == 0


def test_score_takes_weights():
    selective, (x, y) = fitted(names=TEXT)
    answers, rng = selective.predict(x), np.random.default_rng(3)
    answered = np.array([answer is not None for answer in answers])
    weight = rng.integers(0, 5, len(y))
    expected = accuracy_score(y[answered], answers[answered].astype(str), sample_weight=weight[answered])
    assert selective.score(x, y, weight) == pytest.approx(expected)
    assert selective.score(x, y, weight) == pytest.approx(
        selective.score(np.repeat(x, weight, axis=0), np.repeat(y, weight))
    )
    assert selective.score(x, y, sample_weight=np.full(len(y), 0.3)) == pytest.approx(selective.score(x, y))
    assert selective.score(x, y, np.where(answered, 0.0, 1.0)) == 0
    for wrong in (weight[1:], np.where(answered, 1.0, -1.0), np.zeros(len(y)), np.full(len(y), np.nan)):
        with pytest.raises(ValueError, match=r"weight|inconsistent"):
            selective.score(x, y, wrong)


@pytest.mark.slow
def test_the_promise_holds_on_fresh_data_and_an_empirical_threshold_does_not():
    """Labels are drawn from known probabilities, so that the risk of a set of answers is their mean, without noise."""
    limit, rng = binom.ppf(0.99, 20, 0.1), np.random.default_rng(0)
    weights = np.array([1.5, -1.0, 0.5])
    x = rng.normal(size=(500, 3))
    model = LogisticRegression().fit(x, rng.random(500) < expit(x @ weights))
    fresh = rng.normal(size=(20_000, 3))
    truth = expit(fresh @ weights)
    broken = {"best": 0, "empirical": 0}
    for method in broken:
        for _ in range(20):
            x = rng.normal(size=(1500, 3))
            selective = SelectiveClassifier(model, target_risk=0.15, confidence=0.9, method=method, **PLAIN)
            labels, _, accept = selective.fit(x, rng.random(1500) < expit(x @ weights)).decide(fresh)
            broken[method] += np.where(labels, 1 - truth, truth)[accept].mean() > 0.15
    assert broken["best"] <= limit < broken["empirical"]


@pytest.mark.parametrize(
    ("names", "abstain", "value", "dtype"),
    [
        ([5, 7, 9], None, -1, np.int64),
        ([-1, 1], 0, 0, np.int64),
        (np.array([1, 2, 3], np.uint8), None, -1, np.int16),
        ([0.0, 1.0], None, -1.0, np.float64),
        ([0, 1, 2], "unsure", "unsure", object),
        ([False, True], None, None, object),
        (["no", "yes"], None, None, object),
        (["no", "yes"], "no answer", "no answer", np.dtype("<U9")),
        (np.array(["no", "yes"], object), None, None, object),
    ],
)
def test_labels_keep_their_type_beside_the_abstain_value(names, abstain, value, dtype):
    selective, (x, _) = fitted(len(names), names=names, abstain=abstain)
    answers, (labels, _, accept) = selective.predict(x), selective.decide(x)
    assert answers.dtype == dtype
    assert labels.dtype == selective.classes_.dtype == selective.estimator.classes_.dtype
    assert 0 < accept.sum() < len(x)
    assert answers[accept].tolist() == labels[accept].tolist()
    assert {*answers[~accept].tolist()} == {value}
    assert selective.policy_.class_names == tuple(str(name) for name in np.asarray(names).tolist())


@pytest.mark.parametrize(
    ("names", "abstain", "message"),
    [
        ([-1, 1], None, facts("abstain", "-1")),
        ([0, 1], 1, facts("abstain", "1")),
        ([0, 1], True, facts("abstain", "True")),
        (["no", "yes"], "no", facts("abstain", "no")),
        (["no", "yes"], ["maybe"], facts("abstain")),
    ],
)
def test_an_abstain_value_is_no_class(names, abstain, message):
    with pytest.raises(ValueError, match=message):
        fitted(2, names=names, abstain=abstain)


def test_the_estimator_is_used_as_it_is():
    train, held_out, _ = samples(3)
    unfitted, model = LogisticRegression(), LogisticRegression().fit(*train)
    with pytest.raises(NotFittedError, match=facts("LogisticRegression")):
        SelectiveClassifier(unfitted).fit(*held_out)
    assert not hasattr(unfitted, "classes_")
    before = pickle.dumps(model)
    selective = SelectiveClassifier(model, target_risk=0.1)
    with pytest.raises(NotFittedError, match="SelectiveClassifier"):
        selective.predict(held_out[0])
    selective.fit(*held_out).predict(held_out[0])
    assert selective.estimator is selective.estimator_ is model
    assert pickle.dumps(model) == before


def test_labels_that_the_estimator_has_not_seen_are_refused():
    selective, (x, y) = fitted(names=TEXT)
    y = y.astype(object)
    y[3] = "wasp"
    with pytest.raises(ValueError, match=facts("wasp", "ant, bee, cicada")):
        clone(selective).fit(x, y)
    numbers, (x, y) = fitted()
    with pytest.raises(ValueError, match=facts("0, 1, 2")):  # text is no number
        clone(numbers).fit(x, y.astype(str))


@pytest.mark.parametrize("rows", [3, 12])
def test_too_few_samples_never_answer_and_say_so(rows):
    selective, (x, y) = fitted()
    with pytest.warns(UserWarning, match=facts("never answers", "samples")):
        few = clone(selective).set_params(target_risk=0.01).fit(x[:rows], y[:rows])
    assert {*few.predict(x).tolist()} == {-1}
    assert few.score(x, y) == 0.0


def test_what_is_no_single_label_classifier_is_refused():
    (x, y), held_out, _ = samples(3)
    several = RandomForestClassifier(3, random_state=0).fit(x, np.stack([y, y], 1))
    for model, error, message in (
        (LogisticRegression, TypeError, "estimator"),
        ("model", TypeError, "'model'"),
        (LinearRegression().fit(x, y), ValueError, "LinearRegression"),
        (several, ValueError, "one label"),
    ):
        with pytest.raises(error, match=facts(message)):
            SelectiveClassifier(model).fit(*held_out)


def test_decision_functions_of_pairs_are_refused():
    """Three classes have three pairs: the shape alone does not tell."""
    for classes, message in ((3, "decision_function"), (4, "[N, 4]")):
        with pytest.raises(ValueError, match=facts(message)):
            fitted(classes, model=SVC(decision_function_shape="ovo"))
    selective, (x, y) = fitted(3, model=SVC(break_ties=True))
    assert selective.policy_.takes == "logits"
    assert selective.score(x, y) > selective.estimator.score(x, y)


@pytest.mark.parametrize(
    "setting", [{"target_risk": 1.5}, {"calibrator": "magic"}, {"confidence_score": "magic"}], ids=str
)
def test_parameters_are_judged_when_it_is_fitted(setting):
    selective, (x, y) = fitted()
    changed = clone(selective).set_params(**setting)
    with pytest.raises(ValueError, match=next(iter(setting)).removeprefix("confidence_")):
        changed.fit(x, y)


class Refitting(SelectiveClassifier):
    """Fits its classifier on the very data, as scikit-learn's checks need it, which promises nothing."""

    def fit(self, X, y):
        given = self.estimator
        self.estimator = clone(given).fit(X, y)
        try:
            return super().fit(X, y)
        finally:
            self.estimator = given


#: A check of scikit-learn that does not apply, and why.
EXPECTED = {"check_classifiers_classes": "has the classes -1 and 1, for which an abstain value must be given"}


@pytest.mark.slow
def test_checks_of_scikit_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks have too few samples for a promise, and skip what is not installed
        results = check_estimator(
            Refitting(LogisticRegression(), target_risk=0.5, **PLAIN), on_fail="raise", expected_failed_checks=EXPECTED
        )
    assert sum(result["status"] == "passed" for result in results) > 45
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(EXPECTED)


def test_a_clone_shares_the_fitted_classifier_and_forgets_the_policy():
    selective, (x, _) = fitted(abstain=-5, seed=3)
    copy = clone(selective)
    assert copy.estimator is selective.estimator
    assert copy.get_params(deep=False) == selective.get_params(deep=False)
    assert not hasattr(copy, "policy_")
    assert is_classifier(copy)
    unfitted = SelectiveClassifier(LogisticRegression(C=3))
    assert clone(unfitted).estimator is not unfitted.estimator
    assert clone(unfitted).estimator.C == unfitted.get_params()["estimator__C"] == 3
    assert selective.n_features_in_ == x.shape[1]
    loaded = pickle.loads(pickle.dumps(selective))
    assert np.array_equal(loaded.predict(x), selective.predict(x))


def test_frames_keep_the_names_of_their_features():
    pd = pytest.importorskip("pandas")
    (x, y), held_out, _ = samples(2)
    frame, names = (lambda values: pd.DataFrame(values, columns=list("abcd"))), list("abcd")
    selective = SelectiveClassifier(LogisticRegression().fit(frame(x), y), target_risk=0.1)
    assert selective.fit(frame(held_out[0]), held_out[1]).feature_names_in_.tolist() == names
    selective.set_params(estimator=LogisticRegression().fit(x, y)).fit(*held_out)
    assert not hasattr(selective, "feature_names_in_")


def test_pipelines_on_both_sides():
    train, held_out, (x, y) = samples(3, names=TEXT)
    inside = SelectiveClassifier(make_pipeline(StandardScaler(), LogisticRegression()).fit(*train), target_risk=0.1)
    scaler = StandardScaler().fit(train[0])
    model = LogisticRegression().fit(scaler.transform(train[0]), train[1])
    outside = make_pipeline(FrozenEstimator(scaler), SelectiveClassifier(FrozenEstimator(model), target_risk=0.1))
    inside.fit(*held_out)
    outside.fit(*held_out)
    assert inside.predict(x).tolist() == outside.predict(x).tolist()
    assert inside.score(x, y) == outside.score(x, y)


@pytest.mark.slow
def test_grid_search_over_the_risk():
    selective, (x, y) = fitted(2)
    grid = {"target_risk": [0.1, 0.15, 0.3]}

    def coverage(model, features, _):
        return model.decide(features).accept.mean()

    search = GridSearchCV(clone(selective), grid, scoring=coverage, cv=3, error_score="raise").fit(x, y)
    assert search.best_params_ == {"target_risk": 0.3}
    assert search.best_estimator_.estimator is selective.estimator
    shares = search.cv_results_["mean_test_score"]
    assert 0 < shares[0] < shares[1] < shares[2]
    assert GridSearchCV(clone(selective), grid, cv=3).fit(x, y).best_params_ == {"target_risk": 0.1}


@pytest.mark.slow
def test_cross_validated_answers():
    selective, (x, y) = fitted(names=TEXT, abstain="?")
    answers = cross_val_predict(clone(selective), x, y, cv=3)
    assert {*answers.tolist()} == {*TEXT.tolist(), "?"}
    assert (answers == y)[answers != "?"].mean() > selective.estimator.score(x, y)
    selective, (x, y) = fitted()  # here scikit-learn replaces labels by their positions
    probabilities = cross_val_predict(clone(selective), x, y, cv=3, method="predict_proba")
    np.testing.assert_allclose(probabilities, selective.estimator.predict_proba(x), atol=1e-6)  # not calibrated


def test_without_scikit_learn_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(extras, "_is_installed", lambda package: package != "sklearn")
    monkeypatch.delitem(sys.modules, "calibrant.sklearn")
    with pytest.raises(extras.MissingExtraError, match=facts("calibrant[train]")):
        import calibrant.sklearn  # noqa: F401


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        RandomForestClassifier(20, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("names", [["no", "yes"], [3, 5, 8]])
def test_the_exported_graph_answers_as_predict_does(model, names, tmp_path):
    pytest.importorskip("skl2onnx", reason="skl2onnx writes the estimator as ONNX")
    ort = pytest.importorskip("onnxruntime")
    selective, (x, _) = fitted(len(names), names=names, model=clone(model))
    selective.set_params(estimator=FrozenEstimator(selective.estimator)).fit(*samples(len(names), names=names)[1])
    exported = selective.export(tmp_path / "whole.onnx", x)
    session = ort.InferenceSession(exported.path)
    label, confidence, accept, probabilities = session.run(None, {exported.inputs[0].name: x})
    labels, confidences, accepted = selective.decide(x)
    assert 0 < accepted.sum() < len(x)
    assert np.array_equal(accept, accepted)
    differing = int((selective.classes_[label] != labels).sum())  # equal votes of a forest, in float32
    assert differing <= 0.01 * len(x)
    counted = sum(check.differing for check in exported.checks if check.against == "expected")
    assert any("differently from scikit-learn" in remark for remark in exported.remarks) == (counted > 0)
    np.testing.assert_allclose(confidence, confidences, atol=1e-4)
    np.testing.assert_allclose(probabilities, selective.predict_proba(x), atol=1e-4)


def test_an_export_that_cannot_be_right_is_refused(tmp_path, monkeypatch):
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx writes the estimator as ONNX")
    selective, (x, _) = fitted(model=LinearSVC())
    with pytest.raises(ValueError, match=facts("predict_proba")):
        selective.export(tmp_path / "a.onnx", x)
    selective, (x, _) = fitted()
    with pytest.raises(ValueError, match=facts("X")):
        selective.export(tmp_path / "a.onnx", [["ant"]])
    other = LogisticRegression(C=1e-4).fit(*samples(3)[0])
    convert = skl2onnx.to_onnx
    monkeypatch.setattr(skl2onnx, "to_onnx", lambda _, *rest, **options: convert(other, *rest, **options))
    with pytest.raises(ValueError, match=facts("900")):
        selective.export(tmp_path / "a.onnx", x)
    assert not list(tmp_path.iterdir())
