"""Hints about columns: a catalogue of small files, each with the right proposal, or none.

Oracle: the catalogue was filled by hand, and says beside each proposal which confidences and which right answers the
file holds, computed from the arrays that it was written from.
"""

import json
import re

import numpy as np
import pyarrow as pa
import pytest

from calibrant import Predictions
from calibrant.metrics import ece
from tests.helpers.predictions import refusal, write_columns

FORMATS = ("csv", "jsonl", "parquet", "npz", "frame")
N, C = 240, 4
RNG = np.random.default_rng(11)
IDS = np.arange(N) + 1000
TOPICS = np.array(["maths", "law", "art"])[np.arange(N) % 3]
NAMES = np.array(["cat", "dog", "fox", "owl"])
ANIMALS = tuple(NAMES.tolist())
# Two classes: P(1), the truth, and what a threshold at one half predicts.
P1 = RNG.beta(0.6, 0.9, N).round(4)
Y = (RNG.random(N) < P1).astype(int)
SAID = (P1 > 0.5).astype(int)
YES = np.where(Y == 1, "yes", "no")
Z1 = np.log(P1 + 1e-3) - np.log(1 - P1 + 1e-3)
# Four classes: probabilities, logits, the truth, and the predicted class with its probability.
LOGITS = 1.5 * RNG.standard_normal((N, C))
Q = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
K = np.array([RNG.choice(C, p=row) for row in Q])
TOP, SURE = Q.argmax(1), Q.max(1)
RIGHT = (TOP == K).astype(int)
# An answer that is right or wrong, and how sure the model was, never below one half.
HIGH = (0.5 + 0.5 * RNG.random(N)).round(4)
OK = (RNG.random(N) < HIGH).astype(int)
LOW = RNG.random(N).round(4)  # how sure it was, also below one half
HIT = (RNG.random(N) < LOW).astype(int)
NOISE = RNG.random(N)
AGE = RNG.integers(18, 90, N)

BINARY = (np.maximum(P1, 1 - P1), SAID == Y)
MARGIN = (1 / (1 + np.exp(-np.abs(Z1))), (Z1 > 0) == Y)
MULTI = (SURE, RIGHT == 1)
ANSWERS = (HIGH, OK == 1)
HITS = (LOW, HIT == 1)


def spread(values, pattern, names=range(C)):
    """One column per class."""
    return {pattern.format(name): values[:, j] for j, name in enumerate(names)}


def of(columns, data, positive=None):
    """A proposal, and the confidences and right answers that it leads to."""
    return {"columns": columns, "positive": positive}, data


def labelled(labels, holds, column, data, positive=None):
    return [of({"labels": labels, holds: column}, data, positive)]


CATALOGUE = {
    # Two classes, one number.
    "churn": (
        {"customer_id": IDS, "churn": Y, "churn_probability": P1},
        labelled("churn", "probabilities", "churn_probability", BINARY),
    ),
    "y_true, y_score": ({"y_true": Y, "y_score": P1}, labelled("y_true", "probabilities", "y_score", BINARY)),
    "target, model_output": (
        {"target": Y, "model_output": P1},
        labelled("target", "probabilities", "model_output", BINARY),
    ),
    "text classes": ({"label": YES, "score": P1}, [of({"probabilities": "score"}, BINARY, "yes")]),
    "score of the other class": ({"label": YES, "score": 1 - P1}, [of({"probabilities": "score"}, BINARY, "no")]),
    "other class of 0 and 1": (
        {"y": Y, "p_fraud_not": 1 - P1},
        labelled("y", "probabilities", "p_fraud_not", BINARY, "0"),
    ),
    "margin": ({"y": Y, "decision_function": Z1}, labelled("y", "logits", "decision_function", MARGIN)),
    "features beside": ({"id": IDS, "age": AGE, "y": Y, "score": P1}, labelled("y", "probabilities", "score", BINARY)),
    "predicted beside the probability": (
        {"y_true": Y, "y_pred": SAID, "probability": P1},
        labelled("y_true", "probabilities", "probability", BINARY),
    ),
    "predicted beside a score": (
        {"truth": YES, "prediction": np.where(SAID == 1, "yes", "no"), "score": P1},
        labelled("truth", "probabilities", "score", BINARY, "yes"),
    ),
    "predicted beside its probability": (
        {"y_true": Y, "y_pred": SAID, "prob": BINARY[0]},
        [of({"labels": "y_true", "confidence": "prob"}, BINARY)],
    ),
    "noise is no score": ({"y": Y, "x1": NOISE}, []),
    "a score of the wrong file": ({"y": RNG.permutation(Y), "feature": P1}, []),
    "a predicted class is no probability": ({"label": Y, "prediction": SAID}, []),
    "a predicted class as text": ({"label": YES, "prediction": np.where(SAID == 1, "yes", "no")}, []),
    "whole numbers": ({"y": Y, "rating": AGE}, []),
    "percentages": ({"y": Y, "score": 100 * P1}, []),
    "only ids": ({"row": IDS, "name": IDS.astype(str)}, []),
    # An answer with one number.
    "correct": ({"id": IDS, "score": LOW, "correct": HIT, "group": TOPICS}, [of({"confidence": "score"}, HITS)]),
    "correct in words": (
        {"certainty": LOW, "is_correct": np.where(HIT == 1, "Yes", "No")},
        [of({"confidence": "certainty", "correct": "is_correct"}, HITS)],
    ),
    "correct as truth": ({"score": LOW, "correct": HIT == 1}, [of({"confidence": "score"}, HITS)]),
    "correct as 1.0": ({"msp": LOW, "acc": HIT.astype(float)}, [of({"confidence": "msp", "correct": "acc"}, HITS)]),
    "either": (
        {"item": IDS, "score": LOW, "flag": HIT},
        [
            of({"labels": "flag", "probabilities": "score"}, (np.maximum(LOW, 1 - LOW), (LOW > 0.5) == HIT)),
            of({"correct": "flag", "confidence": "score"}, HITS),
        ],
    ),
    "either, never below one half": (
        {"score": HIGH, "result": np.where(OK == 1, "true", "false")},
        [
            of({"labels": "result", "probabilities": "score"}, ANSWERS),
            of({"correct": "result", "confidence": "score"}, ANSWERS),
        ],
    ),
    "a label, never below one half": (
        {"label": OK, "score": HIGH},
        [of({"probabilities": "score"}, ANSWERS), of({"correct": "label", "confidence": "score"}, ANSWERS)],
    ),
    "log-probabilities": ({"logprob": np.log(LOW + 1e-9), "correct": HIT}, []),
    "log-probabilities beside a label": ({"label": HIT, "logprob": np.log(LOW + 1e-9)}, []),
    "an uncertainty": ({"score": 1 - LOW, "correct": HIT}, []),
    "an entropy": ({"entropy": LOW, "correct": HIT}, []),
    "percentages of answers": ({"score": (100 * LOW).round(1), "correct": HIT}, []),
    "a reward margin": ({"margin": Z1, "correct": Y}, []),
    "two confidences": (
        {"score_a": LOW, "score_b": LOW**2, "correct": HIT},
        [of({"confidence": "score_a"}, HITS), of({"confidence": "score_b"}, (LOW**2, HIT == 1))],
    ),
    "no outcome": ({"question_id": IDS, "score": LOW, "topic": TOPICS}, []),
    "topics are no labels": (
        {"question_id": IDS, "score": LOW, "topic": TOPICS, "correct": HIT},
        [of({"confidence": "score"}, HITS)],
    ),
    "confidence without correct": ({"confidence": LOW, "flag": HIT, "n_tokens": AGE}, [of({"correct": "flag"}, HITS)]),
    "confidence without anything": ({"confidence": LOW, "topic": TOPICS}, []),
    "confidence beside an answer": (
        {"confidence": SURE, "answer": NAMES[TOP], "gold": NAMES[K]},
        [of({"predicted": "answer", "labels": "gold"}, MULTI)],
    ),
    "a pipeline": (
        {"label": NAMES[TOP], "score": SURE, "true_label": NAMES[K]},
        [of({"labels": "true_label", "predicted": "label", "confidence": "score"}, MULTI)],
    ),
    "predicted and truth": (
        {"y_true": K, "y_pred": TOP, "conf": SURE},
        [of({"labels": "y_true", "predicted": "y_pred", "confidence": "conf"}, MULTI)],
    ),
    # A number per class.
    "numbered probabilities": ({"y": K} | spread(Q, "p_{}"), labelled("y", "probabilities", "p_*", MULTI)),
    "named probabilities": (
        {"truth": NAMES[K]} | spread(Q, "p_{}", NAMES),
        labelled("truth", "probabilities", "p_*", MULTI),
    ),
    "classes as columns": (
        {"id": IDS, "truth": NAMES[K]} | spread(Q, "{}", NAMES),
        labelled("truth", "probabilities", ANIMALS, MULTI),
    ),
    "classes and features": (
        {"truth": NAMES[K], "age": AGE + 0.5} | spread(Q, "{}", NAMES),
        labelled("truth", "probabilities", ANIMALS, MULTI),
    ),
    "numbered logits": ({"y": K} | spread(LOGITS, "z_{}"), labelled("y", "logits", "z_*", MULTI)),
    "log-probabilities per class": (
        {"gold": K} | spread(np.log(Q), "loglik_{}"),
        labelled("gold", "logits", "loglik_*", MULTI),
    ),
    "softmax in columns called logit": (
        {"y": K} | spread(Q, "logit_{}"),
        labelled("y", "probabilities", "logit_*", MULTI),
    ),
    "predicted beside classes": (
        {"y": K, "best": TOP} | spread(Q, "p_{}"),
        labelled("y", "probabilities", "p_*", MULTI),
    ),
    "features are no logits": ({"y": K} | spread(RNG.standard_normal((N, C)), "x_{}"), []),
    "one-hot columns": ({"y": K} | spread(np.eye(C)[TOP], "is_{}"), []),
    "logits without labels": (
        {"weight": NOISE, "klass": K} | spread(LOGITS, "logits_{}"),
        [of({"labels": "klass"}, MULTI)],
    ),
    "logits without anything": ({"id": IDS} | spread(LOGITS, "logits_{}"), []),
    "an array": ({"y": K, "scores": Q}, labelled("y", "probabilities", "scores", MULTI)),
    "an array of logits": ({"y": K, "out": LOGITS}, labelled("y", "logits", "out", MULTI)),
    "logits with a strange label": (
        {"logits": LOGITS, "smoothing_label": NOISE, "outcome": K},
        [of({"labels": "outcome"}, MULTI)],
    ),
    # Further shapes.
    "two scores of one kind": (
        {"label": Y, "prob": P1, "proba": P1**2},
        [
            of({"probabilities": "prob"}, BINARY),
            of({"probabilities": "proba"}, (np.maximum(P1**2, 1 - P1**2), (P1**2 > 0.5) == Y)),
        ],
    ),
    "a pipeline without the truth": ({"label": NAMES[TOP % 2], "score": HIGH}, []),
    "a scaled feature": ({"y": Y, "glucose_scaled": (0.7 + 0.1 * P1 + 0.2 * NOISE).round(3)}, []),
    "a standardised feature": ({"y": Y, "age_z": Y + 2 * RNG.standard_normal(N)}, []),
    "a ratio beside verdicts": ({"length_ratio": NOISE, "correct": HIT}, []),
    "logits that are log-probabilities of answers": ({"logits": np.log(LOW + 1e-9), "correct": HIT}, []),
    "confidence in percent": ({"conf": (100 * LOW).astype(int), "correct": HIT}, []),
    "correct in capitals": (
        {"model_confidence": LOW, "correct": np.where(HIT == 1, "TRUE", "FALSE")},
        [of({"confidence": "model_confidence"}, HITS)],
    ),
    "a column called after its class": (
        {"answer_is_yes": YES, "p_yes": P1},
        [of({"labels": "answer_is_yes", "probabilities": "p_yes"}, BINARY, "yes")],
    ),
    "fraud": ({"is_fraud": Y, "fraud_score": P1}, labelled("is_fraud", "probabilities", "fraud_score", BINARY)),
    "predicted and observed": (
        {"observed": K, "yhat": TOP, "max_prob": SURE},
        [of({"labels": "observed", "predicted": "yhat", "confidence": "max_prob"}, MULTI)],
    ),
    "grades that are no classes": ({"correct": Y} | spread(Q**0.5, "grade_{}"), []),
    "ratings that are no logits": ({"y": TOP % 2} | spread((9 * Q[:, :2]).round(1), "rating_{}", (1, 2)), []),
    "features that know the classes": ({"y": K} | spread(LOGITS, "pc_{}"), []),
    "numbered classes": ({"y": K} | spread(Q, "prob_{}"), [of({"labels": "y"}, MULTI)]),
    "named logits, numbered labels": ({"y": K} | spread(LOGITS, "z_{}", NAMES), labelled("y", "logits", "z_*", MULTI)),
    "logits of two models": (
        {"y": Y, "logit_a": Z1, "logit_b": 2 * Z1},
        [
            of({"labels": "y", "logits": "logit_a"}, MARGIN),
            of({"labels": "y", "logits": "logit_b"}, (1 / (1 + np.exp(-np.abs(2 * Z1))), (Z1 > 0) == Y)),
        ],
    ),
    "logits of two classes, counted from 1": ({"y": Y, "z1": -Z1 / 2, "z2": Z1 / 2}, []),
    "the probability of what was predicted": (
        {"gold": Y, "label": np.array(["LABEL_0", "LABEL_1"])[SAID], "score": BINARY[0]},
        [],
    ),
    "what says that an answer is wrong": ({"score": LOW, "is_wrong": 1 - HIT}, []),
    "a longitude": ({"y": Y, "longitude": -120 - NOISE}, []),
    "a probability of answers": ({"prob": LOW, "correct": HIT}, [of({"confidence": "prob"}, HITS)]),
    "a probability and a grade": (
        {"p": LOW, "grade": np.where(HIT == 1, "CORRECT", "INCORRECT")},
        [of({"correct": "grade", "confidence": "p"}, HITS)],
    ),
    "a probability and a letter": (
        {"proba": LOW, "is_right": np.where(HIT == 1, "T", "F")},
        [of({"correct": "is_right", "confidence": "proba"}, HITS)],
    ),
    "a probability beside the predicted class and a verdict": (
        {"p": BINARY[0], "label": SAID, "correct": BINARY[1]},
        [of({"confidence": "p"}, BINARY)],
    ),
    "a probability beside the truth and a verdict": (
        {"p": P1, "label": Y, "correct": BINARY[1]},
        [of({"probabilities": "p"}, BINARY)],
    ),
    "embeddings": ({"y": K, "embedding": RNG.standard_normal((N, 7))}, []),
}


def write(columns, kind, path):
    """The file of a format, or a frame; None where the format has no such columns."""
    if kind == "frame":
        return pa.table({name: values.tolist() for name, values in columns.items()})
    if kind == "csv" and any(values.ndim > 1 for values in columns.values()):
        return None
    return write_columns(path / f"x.{kind}", columns)


def read(file, **options):
    return Predictions.from_frame(file, **options) if isinstance(file, pa.Table) else Predictions.open(file, **options)


def options_in(text):
    """The options that an error proposes, as it writes them for Python."""
    found = re.findall(r"\(in Python columns=(\{.*?\})(?:, positive=(\".*?\"))?\)", text)
    return [(json.loads(columns), json.loads(positive) if positive else None) for columns, positive in found]


def slow_ece(confidence, correct, bins=15):
    edges = np.ceil(np.maximum(confidence, 1e-12) * bins)
    parts = [edges == bin_ for bin_ in np.unique(edges)]
    return sum(part.mean() * abs(confidence[part].mean() - correct[part].mean()) for part in parts)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("case", CATALOGUE)
def test_a_hint_is_given_where_the_values_fit_and_can_be_followed(case, kind, tmp_path):
    columns, proposals = CATALOGUE[case]
    file = write(columns, kind, tmp_path)
    if file is None:
        pytest.skip("the format has no lists")
    if kind == "npz" and (
        {"logits_0", "prob_0"} & set(columns) or any("*" in str(o) or "(" in str(o) for o, _ in proposals)
    ):
        proposals = []  # there the classes are one array
    with pytest.raises(ValueError, match=r"x\.|frame") as error:
        read(file)
    text = str(error.value)
    proposed = options_in(text)
    expected = [
        ({role: list(value) if isinstance(value, tuple) else value for role, value in options["columns"].items()},
         options["positive"])
        for options, _ in proposals
    ]  # fmt: skip
    assert proposed == expected, text
    assert len(proposed) > 0 or "probably" not in text
    for (mapping, positive), (_, (confidence, correct)) in zip(proposed, proposals, strict=True):
        predictions = read(file, columns=mapping, positive=positive)
        if predictions.holds == "confidence":
            pair = predictions.confidence, predictions.correct
        else:
            scores = predictions.probabilities
            if predictions.holds == "logits":
                scores = np.exp(predictions.logits) / np.exp(predictions.logits).sum(1, keepdims=True)
            pair = scores.max(1), scores.argmax(1) == predictions.labels
        np.testing.assert_allclose(pair[0], confidence, atol=1e-9)
        assert pair[1].tolist() == correct.tolist()
        assert ece(*pair) == pytest.approx(slow_ece(confidence, correct), abs=1e-9)


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_a_proposal_that_lacks_a_column_is_not_proposed_about(suffix, tmp_path):
    """Within seconds: hints about hints about hints took hours."""
    columns = {"confidence": SURE[:35].round(4), "predicted": TOP[:35]}
    assert "labels" in refusal(write_columns(tmp_path / f"a{suffix}", columns), unlabelled=True)
