"""./dev bench: intervals, claims and rules by hand, studies that go on, the adversary's populations by counting."""

import json
import math
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks import _trained_curves as curves
from benchmarks import _trained_people as people
from benchmarks import _trained_record as record
from benchmarks import trained
from benchmarks._evidence_claims import over_files
from benchmarks._evidence_files import Split, interval_over_splits, random_splits, verdict
from benchmarks._evidence_networks import PAIRED, _drawn_metrics
from benchmarks._evidence_policies import ALLOWED, RISKS, fit_policies, summarise
from benchmarks._evidence_repairs import former_rule, least_rule, one_error_rule, regret
from benchmarks._evidence_rows import is_close, policy_rows
from benchmarks._trained_claims import (
    NOT_RUN,
    Design,
    as_accurate,
    higher,
    judge,
    lower,
    normalised,
    regained,
    survives_holm,
    times_lower,
)
from benchmarks._trained_page import ELSEWHERE, page, recipes_page
from benchmarks._trained_studies import SEARCH_SEED, STUDIES, Numbers, TrainedStudy
from benchmarks.adversary import Population, broken, planned, random_population, words, worst_of
from calibrant import Policy, Predictions
from calibrant.experiments import Results
from calibrant.experiments.tables.cells import parse_column
from calibrant.metrics import Interval, aurc, coverage_at_risk, e_aurc, ece, nll, top_label
from calibrant.promises.thresholds import curve_of
from calibrant.recipes import names
from tests.experiments.conftest import Here
from tests.helpers.policies import drawn
from tests.helpers.result_rows import row


def test_interval_over_splits_by_hand():
    """Of 1, 2, 3: mean 2, standard deviation 1, times sqrt(1/3 + 1), times t(0.975, 2) = 4.302653."""
    interval = interval_over_splits([1.0, 2.0, 3.0])
    assert interval.value == 2.0
    assert interval.high - 2.0 == pytest.approx(4.302653 * (4 / 3) ** 0.5, rel=1e-6)
    assert over_files([1.0, 2.0, 3.0]).high - 2.0 == pytest.approx(4.302653 / 3**0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("limits", "sign", "word"),
    [((0.1, 0.3), 1, "holds"), ((0.1, 0.3), -1, "does not hold"), ((-0.1, 0.3), 1, "within noise")],
)
def test_verdicts(limits, sign, word):
    assert verdict(Interval(sum(limits) / 2, *limits), sign) == word


def test_splits_are_halves_and_do_not_depend_on_their_number():
    logits, labels = np.arange(22.0).reshape(11, 2), np.arange(11)
    few, many = (list(random_splits(logits, labels, count, 3)) for count in (2, 5))
    assert (few[1].fit_labels == many[1].fit_labels).all()
    assert sorted([*few[0].fit_labels, *few[0].test_labels]) == list(range(11))
    assert (few[0].fit_logits[:, 0] == 2 * few[0].fit_labels).all()


def test_replicates_agree_with_the_metrics():
    """Images drawn twice count twice, so they are those of data in which every image stands twice."""
    rng = np.random.default_rng(0)
    sure = np.sort(rng.uniform(0.2, 1.0, 400))[::-1]
    correct = rng.random(400) < sure
    for weight in (1, 2):
        metrics = _drawn_metrics(np.full(400, weight), ~correct)
        assert set(metrics) == set(PAIRED)
        assert metrics["aurc"] == pytest.approx(aurc(sure, correct), abs=1e-12)
        assert metrics["e_aurc"] == pytest.approx(e_aurc(sure, correct, optimum="asymptotic"), abs=1e-12)
        assert metrics["coverage_5"] == coverage_at_risk(sure, correct, 0.05)


def test_rules_by_hand():
    """Temperature wins by 1.5 standard errors; vector wins by half a standard error more."""
    none = np.ones(100)
    swing = np.where(np.arange(100) % 2, 1.0, -1.0)  # mean 0, standard error 0.1
    losses = {"none": none, "temperature": none - 0.15 + swing, "vector": none - 0.2 + swing[::-1] * 2}
    assert former_rule(losses) == "none"
    assert one_error_rule(losses) == "temperature"
    assert least_rule(losses) == "vector"


def test_regret_is_against_the_best_fixed_repair():
    names = ("none", "temperature", "ensemble", "isotonic", "vector")
    splits = [
        {"metrics": {name: {"nll": value} for name, value in zip(names, values, strict=True)}, "choices": {"least": c}}
        for values, c in (((5, 1, 2, 3, 4), "ensemble"), ((5, 3, 4, 3, 2), "vector"))
    ]
    assert regret(splits, "temperature") == 0  # mean 2, the least
    assert regret(splits, "vector") == 1
    assert regret(splits, "least") == 0  # (2 + 2) / 2 - 2


def policy_row(accepted, wrong):
    return {"accepted": accepted, "wrong": wrong, "samples": 200, "clairvoyant": 0.5}


def test_broken_promises_are_counted():
    """Of 100 answers, 6 wrong are above 5% by chance; 10 are beyond it: P(X >= 10) = 0.0282, P(X >= 9) = 0.0631."""
    rows = [policy_row(100, 6), policy_row(100, 10), policy_row(100, 9), policy_row(0, 0)]
    summary = summarise(rows, 0.05)
    assert (summary["above"], summary["beyond"], summary["abstained"]) == (0.75, 0.25, 0.25)
    assert summary["coverage"] == 0.375
    assert summary["risk"] == pytest.approx(25 / 300)
    assert summarise([policy_row(100, 0)] * 200, 0.05)["verdict"] == "holds"
    assert summarise([policy_row(100, 20)] * 50, 0.05)["verdict"] == "does not hold"
    assert pytest.approx(0.0975) == ALLOWED


@pytest.mark.slow
@pytest.mark.parametrize("samples", [120, 900])
def test_policies_are_those_of_policy_fit(samples):
    logits, labels = drawn(samples)
    policies = fit_policies(Split(logits, labels, logits, labels))
    for risk in RISKS:
        policy = Policy.fit(Predictions.from_logits(logits, labels), risk)
        assert policy.threshold.value == policies[risk].threshold.value
        assert str(policy.score) == str(policies[risk].score)


def test_rows_are_compared_to_the_last_digit():
    assert is_close(["a 1", "**+0.0123** [0.01, 0.02]"], ["a 1", "+0.0124 [0.01, 0.02]"])
    assert not is_close(["a", "0.0123"], ["a", "0.0130"])
    assert not is_close(["a", "holds"], ["a", "within noise"])


def test_a_policys_row_names_its_file_and_its_verdict():
    rows = [policy_row(100, 1)] * 3
    part = {"expected_cost/sst2_gpt2": {"splits": 3, "targets": {str(risk): rows for risk in RISKS}}}
    ((name, splits, *_, word),) = policy_rows({"policies": part}, 0.05)
    assert ("SST-2" in name, splits, word) == (True, "3", "within noise")


every = pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)


def results_of(**values):
    """The values of each method, by seed; a name before "__" is the method's, the rest is the metric's."""
    rows = []
    for name, several in values.items():
        method, metric = name.split("__")
        posthoc = "logit-norm" if metric.endswith("_norm") else "none"
        metric = metric.removesuffix("_norm")
        rows += [row(method, seed, metric, value, posthoc=posthoc) for seed, value in enumerate(several)]
    return Results(rows)


def verdict_of(claim, results):
    return judge([claim], results)[0].verdict


def test_verdicts_by_hand():
    """Differences 1, 2, 3 have the interval 2 -+ 4.302653 / sqrt(3) = [-0.484, 4.484]; 10, 11, 12 are above 0."""
    noisy = results_of(a__nll=(1.0, 2.0, 3.0), b__nll=(0.0, 0.0, 0.0))
    assert verdict_of(lower("", "", "a", "b", "nll"), noisy) == "within noise"
    assert judge([higher("", "", "a", "b", "nll")], noisy)[0].numbers == "+2.0000 [-0.4841, +4.4841]"
    clear = results_of(a__nll=(10.0, 11.0, 12.0), b__nll=(0.0, 0.0, 0.0))
    assert verdict_of(higher("", "", "a", "b", "nll"), clear) == "holds"
    assert verdict_of(lower("", "", "a", "b", "nll"), clear) == "does not hold"


def test_seeds_that_share_samples_and_looks_widen_the_interval():
    """Differences 10, 11, 12: deviation 1. By tables t(0.975; 2) is 4.302653 and t(0.9875; 2) is 6.205347."""
    results = results_of(a__nll=(10.0, 11.0, 12.0), b__nll=(0.0, 0.0, 0.0))
    claim = higher("", "", "a", "b", "nll")
    reach = 4.302653 * math.sqrt(1 / 3 + 0.5)
    shared = judge([claim], results, Design(overlap=0.5))[0]
    assert shared.numbers == f"+11.0000 [{11 - reach:+.4f}, {11 + reach:+.4f}]"
    reach = 6.205347 / math.sqrt(3)
    twice = judge([claim], results, Design(looks=2))[0]
    assert twice.numbers == f"+11.0000 [{11 - reach:+.4f}, {11 + reach:+.4f}]"
    once = judge([claim], results)[0]
    statistic = 11 * math.sqrt(3)
    assert once.p == pytest.approx(1 - statistic / math.sqrt(2 + statistic**2))  # the t distribution with 2 degrees
    assert twice.p == pytest.approx(2 * once.p)


def test_a_repair_that_changes_nothing_does_not_lower():
    results = results_of(ls__aurc=(0.06, 0.05, 0.04), ls__aurc_norm=(0.06 + 2e-7, 0.05, 0.04 - 1e-7))
    assert verdict_of(normalised("", "", "ls"), results) == "does not hold"


def test_holm_by_hand():
    """0.01 x 3 and 0.02 x 2 are below 0.05, 0.06 is not; of 0.02, 0.03, 0.04 not even the smallest: 0.02 x 3."""

    class Judged(NamedTuple):
        p: float | None

    assert survives_holm([Judged(0.06), Judged(0.01), Judged(None), Judged(0.02)]) == [False, True, False, True]
    assert not any(survives_holm([Judged(0.02), Judged(0.03), Judged(0.04)]))


def test_two_seeds_and_missing_methods_are_not_run():
    two = results_of(a__nll=(10.0, 11.0), b__nll=(0.0, 0.0))
    assert judge([higher("", "", "a", "b", "nll")], two)[0].verdict == NOT_RUN
    alone = judge([higher("", "", "a", "c", "nll")], two)[0]
    assert (alone.verdict, len(alone.values)) == (NOT_RUN, 0)


@pytest.mark.slow
def test_a_page_without_runs_invents_nothing():
    claims = sum(len(study.claims) for study in STUDIES.values())
    assert f"| all | 0 | 0 | 0 | 0 | {claims} | {claims} |" in page(dict.fromkeys(STUDIES, Numbers()))
    listed = recipes_page(dict.fromkeys(STUDIES, Numbers()))
    small = {name for name in names() if name.startswith("small/")}
    assert {study.recipe for study in STUDIES.values()} | set(ELSEWHERE) == small
    assert all(f"| `{name}` |" in listed for name in small)


def test_a_ratio_is_a_mean_of_logarithms():
    """Of 6, 6 x 1.1 and 6 / 1.1 the mean ratio is 6; the interval's half width is 4.302653 log(1.1) / sqrt(3)."""
    results = results_of(a__ece=(0.01, 0.01, 0.01), b__ece=(0.06, 0.066, 0.06 / 1.1))
    judgement = judge([times_lower("", "", "a", "b", "ece", 4.0)], results)[0]
    half = math.exp(4.302653 * math.log(1.1) / math.sqrt(3))
    assert judgement.numbers == f"6.00 x [{6 / half:.2f}, {6 * half:.2f}]"
    assert judgement.verdict == "holds"
    assert verdict_of(times_lower("", "", "a", "b", "ece", 8.0), results) == "does not hold"
    assert verdict_of(times_lower("", "", "a", "b", "ece", 6.1), results) == "within noise"


def test_accuracy_may_be_lower_by_the_margin():
    results = results_of(a__accuracy=(0.900, 0.901, 0.899), b__accuracy=(0.901, 0.902, 0.902))  # -0.001, -0.001, -0.003
    assert verdict_of(as_accurate("", "", "a", "b", margin=0.01), results) == "holds"
    assert verdict_of(as_accurate("", "", "a", "b", margin=0.0001), results) == "within noise"


@pytest.mark.parametrize(
    ("plain", "normed", "word"), [(0.02, 0.03, "holds"), (0.02, 0.06, "does not hold"), (0.08, 0.06, "does not apply")]
)
def test_more_than_half_is_taken_back_where_something_was_lost(plain, normed, word):
    """LS has 0.06: with CE at 0.02 the middle is 0.04, and with CE at 0.08 nothing was lost."""
    steps = (0.0, 0.001, -0.001)
    results = results_of(
        ce__aurc=(plain, plain, plain), ls__aurc=(0.06, 0.06, 0.06), ls__aurc_norm=[normed + step for step in steps]
    )
    assert verdict_of(regained("", "", "ls", "ce"), results) == word
    assert verdict_of(normalised("", "", "ls"), results) == ("holds" if normed < 0.06 else "within noise")


@every
def test_claims_are_about_methods_and_sets_of_the_recipe(study: TrainedStudy):
    plan = study.plan(study.seeds)
    sets = {"test", *plan.recipe.data.also} | ({people.SET} if study.asks_people else set())
    assert SEARCH_SEED not in range(study.seeds)
    assert set(study.first) <= set(plan.methods)
    for claim in study.claims:
        for term in claim.terms:
            name, _, target = term.label.partition(", tuned for ")
            assert name in plan.methods
            assert bool(target) <= (target in study.tune)
            assert parse_column(term.column).set in sets
    assert {parse_column(column).set for column in study.columns} <= sets


@every
def test_what_is_searched_is_searched_on_what_is_not_reported(study: TrainedStudy):
    plan = study.plan(3)
    if plan.recipe.data.resample:  # every seed has test data of its own, and searches on its own training data
        assert plan.search_seeds == (0, 1, 2)
    elif study.tune:
        assert plan.search_seeds == (SEARCH_SEED,)
    assert plan.seeds[-3:] == (0, 1, 2)


@pytest.fixture(scope="module")
def brief():
    """Digits in a second: two methods and few epochs, one of them searched."""
    whole = STUDIES["digits"]

    class Brief(TrainedStudy):
        def load(self):
            recipe = whole.load()
            methods = {name: recipe.methods[name] for name in ("ce", "lr")}
            training = recipe.training.model_copy(update={"epochs": 1.0})
            search = {"lr": {"alpha": (0.05, 0.2)}}
            return recipe.model_copy(update={"methods": methods, "training": training, "search": search, "tables": {}})

    return Brief("digits", whole.recipe, "", "", whole.claims[:1], 0.0, seeds=1, tune=("ece",))


@pytest.mark.slow
def test_a_study_is_read_as_far_as_it_came_and_goes_on(brief, tmp_path):
    folder = tmp_path / "digits"
    assert trained.stored(brief, folder, 2) == Numbers()
    trained.run(brief, "", folder, 1, Here(), tmp_path / "records")
    numbers = trained.stored(brief, folder, 2)  # of two seeds, the second has no search yet
    results = numbers.tested
    assert sorted(json.loads(text)["alpha"] for text in numbers.trials.column("settings")) == [0.05, 0.2]
    assert 0 < numbers.chance < 0.1
    text = page(dict.fromkeys(STUDIES, Numbers()) | {"digits": numbers})
    assert "alpha = 0.05" in text
    assert set(results.column("seed")) == {0}
    assert set(results.column("method")) == {"ce", "lr"}
    assert set(results.column("stage")) == {"final"}
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/result.json")}
    assert len(finished) == 4  # cross-entropy, two candidates, and the better one on all of the training data
    recorded = record.read(brief, tmp_path / "records")
    assert set(recorded.tested) <= set(numbers.tested)
    assert set(recorded.trials) <= set(numbers.trials)
    assert (recorded.chance, recorded.machines) == (numbers.chance, numbers.machines)
    same = page(dict.fromkeys(STUDIES, Numbers()) | {"digits": recorded})
    assert same == text
    assert record.unfinished(brief, recorded, 1) == []
    assert record.unfinished(brief, recorded, 2) == ["ce", "lr"]
    trained.run(brief, "", folder, 1, Here(), tmp_path / "records")
    assert {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/result.json")} == finished


def test_numbers_of_another_recipe_do_not_count(tmp_path):
    study = STUDIES["breast_cancer"]
    numbers = Numbers(Results([row("ce", 0, "accuracy", 0.9), row("ls", 0, "accuracy", 0.8)]), chance=0.1)
    record.write(study, numbers, tmp_path)
    assert record.read(study, tmp_path).tested.column("method") == ["ce", "ls"]
    file = tmp_path / "breast_cancer.json"
    file.write_text(file.read_text().replace(record.hashes_of(study)["ce"], "0" * 16))
    assert record.read(study, tmp_path).tested.column("method") == ["ls"]
    assert record.read(study, tmp_path).chance is None  # which was that of cross-entropy
    assert record.read(STUDIES["digits"], tmp_path) == Numbers()


def test_votes_by_hand():
    """Right with 1 and 0.5, most confident first: risks 0 and 0.25. Gaps of 0.95 - 1 and 0.85 - 0.5."""
    confidence, agreement = np.array([0.85, 0.95]), np.array([0.5, 1.0])
    assert people.area(confidence, agreement) == pytest.approx((0.0 + 0.25) / 2)
    assert people.calibration_gap(confidence, agreement) == pytest.approx((0.05 + 0.35) / 2)


def write_graded(folder):
    """Predictions of 40 samples, the more confident the later: of the least confident half, every second is wrong."""
    gaps = np.linspace(0.1, 4.0, 40)
    logits = np.stack([gaps, np.zeros(40)], axis=1)
    labels = np.where((np.arange(40) < 20) & (np.arange(40) % 2 == 0), 1, 0)
    for name in ("val", "test"):
        Predictions.from_logits(logits, labels).save(folder / f"{name}.npz")


def test_curves_by_hand(tmp_path):
    """The first error comes behind the 21 most confident: 1 of 22, then one of every two more, 10 of 40 at last."""
    write_graded(tmp_path)
    numbers = {(n.posthoc, n.metric): n.value for n in curves.numbers_of(tmp_path, "test")}
    assert len(numbers) == 2 * len(curves.COVERAGES)
    for posthoc in curves.PANELS:
        values = [numbers[posthoc, metric] for metric in curves.METRICS]
        assert values == pytest.approx([max(0, (count - 20) // 2) / count for count in range(1, 41)])


def test_breast_cancer_is_read_as_a_table(tmp_path):
    path = tmp_path / "breast_cancer.npz"
    trained.write_breast_cancer(path)
    from calibrant.data import read

    test, train = (read(path, split, layout="arrays") for split in ("test", "train"))
    assert (len(test), len(train), test.classes) == (171, 398, ("malignant", "benign"))
    assert sum(test.counts) + sum(train.counts) == 569
    assert test.counts[0] + train.counts[0] == 212  # malignant, by scikit-learn's description


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tides"], "tides"),
        (["pacs"], "--data"),
        (["--seeds", "0"], "--seeds"),
        (["digits", "--methods", "tides"], "tides"),
        (["--methods", "ce"], "--methods"),
    ],
)
def test_bad_arguments_end_with_2(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["trained", *arguments])
    with pytest.raises(SystemExit) as ended:
        trained.main()
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_people_who_agree_are_a_label(tmp_path):
    """With one class for each image, the numbers are those of Calibrant's own functions; ties are among the scores."""
    rng = np.random.default_rng(3)
    for name, number in (("val", 300), ("test", 500)):
        logits = 3 * rng.standard_normal((number, 4))[rng.integers(0, number // 2, number)]
        labels = (logits + 2 * rng.gumbel(size=logits.shape)).argmax(1)
        ids = np.array([f"{name}/{n}" for n in range(number)])
        Predictions.from_logits(logits, labels, ids=ids).save(tmp_path / f"{name}.npz")
    votes = dict(zip(ids.tolist(), np.eye(4)[labels], strict=True))
    numbers = {(n.posthoc, n.metric): n.value for n in people.numbers_by(votes, tmp_path)}
    confidence, _, correct = top_label(logits, labels)
    assert numbers["none", "accuracy"] == correct.mean()
    assert numbers["none", "nll"] == pytest.approx(nll(logits, labels), abs=1e-12)
    assert numbers["none", "ece"] == pytest.approx(ece(confidence, correct), abs=1e-9)
    assert numbers["none", "aurc"] == pytest.approx(aurc(confidence, correct), abs=1e-9)
    assert len(set(confidence)) < len(confidence)
    assert 0 < numbers["logit-norm", "aurc"] < 1


def test_curves_of_pooled_sets_choose_the_normalisation_as_their_area_does(tmp_path):
    """On the validation data the length of the logits is noise, on the pooled ones it tells right from wrong."""
    rng = np.random.default_rng(0)
    direction, length = rng.standard_normal((2, 600, 5)), 10.0 ** rng.uniform(-1, 1, (2, 600, 1))
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    logits = direction * length
    right = direction[0].max(1) > 0.7, length[1, :, 0] > 1
    for name, part, correct in zip(("val", "pooled"), logits, right, strict=True):
        labels = np.where(correct, part.argmax(1), part.argmin(1))
        Predictions.from_logits(part, labels).save(tmp_path / f"{name}.npz")
    own, other = (
        np.mean([n.value for n in curves.numbers_of(tmp_path, "pooled", is_pooled=pooled) if n.posthoc == "logit-norm"])
        for pooled in (True, False)
    )
    confidence, *_ = top_label(logits[1], labels)
    assert own == pytest.approx(aurc(confidence, right[1]), abs=0.02)  # which normalisation would raise
    assert other > own + 0.1


def test_what_was_measured_last_counts():
    recorded = Numbers(Results([row("ce", seed, "accuracy", 0.9) for seed in (0, 1)]), chance=0.1, machines=("a",))
    measured = Numbers(Results([row("ce", 1, "accuracy", 0.7)]), machines=("b",))
    both = record.joined(recorded, measured)
    assert both.tested.by_seed(method="ce", metric="accuracy") == {0: 0.9, 1: 0.7}
    assert (both.chance, both.machines) == (0.1, ("a", "b"))


def test_data_that_are_not_at_hand(tmp_path):
    (tmp_path / "pacs").mkdir()
    assert trained.data_of(STUDIES["pacs"], tmp_path, tmp_path) == str(tmp_path / "pacs")
    assert trained.data_of(STUDIES["newsgroups"], tmp_path, tmp_path) is None
    assert trained.data_of(STUDIES["newsgroups"], None, tmp_path) is None
    assert trained.data_of(STUDIES["digits"], None, tmp_path) == ""


TWO = Population(
    ((0.5, 0.2, 0.3), (0.25, 0.5, 0.25)), ((0.1, 0.4, 0.2), (0.05, 0.3, 0.9)),
    ((True, False, True), (False, True, False)), 200, 0.1, 0.9,
)  # fmt: skip


@pytest.mark.parametrize("group", [0, 1])
def test_the_risk_of_a_threshold_by_counting(group):
    score, correct = TWO.draw(group, 300_000, np.random.default_rng(1))
    for threshold in (2.6, 2.2, 1.7, 1.4, 0.3, -1.0):
        accepted = score >= threshold
        counted = float((~correct[accepted]).mean()) if accepted.any() else 0.0
        assert TWO.risk_at(group, threshold) == pytest.approx(counted, abs=0.006)


def test_a_threshold_without_a_promise_is_caught():
    def empirical(score, correct, risk, delta):
        curve = curve_of(score, correct)
        fits = np.flatnonzero((curve.errors <= risk * curve.accepted) & (curve.accepted > 0))
        return float(curve.threshold[fits[-1]]) if len(fits) else np.inf

    flat = Population(((1.0,),), ((0.101,),), ((False,),), 200, 0.1, 0.9)
    assert broken(flat, empirical, 60, 3) > 50
    assert broken(flat, planned, 60, 3) < 20
    assert broken(flat, lambda *_: np.inf, 20, 3) == 0  # nothing is promised of nothing
    assert broken(flat, lambda *_: -np.inf, 20, 3) == 20


def test_the_search_is_repeatable_and_its_populations_are_whole(monkeypatch):
    monkeypatch.setattr("benchmarks.adversary.FEW", 4)
    first, again = (worst_of(planned, 3, 5)[0] for _ in range(2))
    assert first == again
    for seed in range(20):
        population = random_population(np.random.default_rng(seed))
        assert np.sum(population.share, axis=1) == pytest.approx(1.0)
        assert 0 < np.min(population.wrong) <= np.max(population.wrong) < 1
    assert words({"share": [[1.0]], "wrong": [[0.05]], "tied": [[True]]}) == "100% at 0.05 (tied)"
