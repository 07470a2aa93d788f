"""The audit: numbers as the exact functions give them, findings for planted faults, streaming, files and command."""

import json
import math

import numpy as np
import pytest

from calibrant import Predictions, audit
from calibrant.cli import main
from calibrant.metrics import classwise_ece, coverage_at_risk, ece, nll


def drawn(size, classes, scale, seed, *, temperature=1.0):
    """Logits that are honest when divided by scale."""
    rng = np.random.default_rng(seed)
    honest = 2 * rng.standard_normal((size, classes))
    labels = (honest / temperature + rng.gumbel(size=honest.shape)).argmax(1)
    return scale * honest, labels


def smoothed(size, seed):
    """Logits as label smoothing leaves them: at equal softmax, wrong predictions have the larger logits."""
    rng = np.random.default_rng(seed)
    honest, labels = drawn(size, 6, 1.0, seed)
    wrong = honest.argmax(1) != labels
    offset = rng.normal(0, 0.5, size) + 3.0 * wrong
    centred = honest - honest.mean(1, keepdims=True)
    return centred + offset[:, None], labels


def titles(found):
    return [finding["title"] for finding in found.models[0]["findings"]]


@pytest.fixture(scope="module")
def overconfident():
    z, y = drawn(4000, 7, 2.5, 1)
    return z, y, audit(Predictions.from_logits(z, y), replicates=100)


def test_numbers_are_those_of_the_exact_functions(overconfident):
    z, y, found = overconfident
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    confidence, correct = p.max(1), p.argmax(1) == y
    assert found.metrics["ece_15"] == pytest.approx(ece(confidence, correct), abs=1e-9)
    assert found.metrics["ece_100"] == pytest.approx(ece(confidence, correct, bins=100), abs=1e-9)
    assert found.metrics["nll"] == pytest.approx(nll(z, y))
    assert found.metrics["classwise_ece"] == pytest.approx(classwise_ece(z, y), abs=1e-9)
    bound = found.bounds["coverage_at_risk_0.1"]
    assert abs(found.metrics["coverage_at_risk_0.1"] - coverage_at_risk(confidence, correct, 0.1)) <= bound + 1e-12
    by_class = {row["name"]: row for row in found.models[0]["classes_table"]}
    predicted = p.argmax(1) == 3
    assert by_class["3"]["count"] == predicted.sum()
    assert by_class["3"]["accuracy"] == pytest.approx(correct[predicted].mean())
    assert by_class["3"]["confidence"] == pytest.approx(confidence[predicted].mean())
    assert by_class["3"]["ece"] == pytest.approx(ece(confidence[predicted], correct[predicted]))
    assert by_class["3"]["classwise_ece"] == pytest.approx(classwise_ece(z, y, average=None)[3], abs=1e-9)
    errors = found.models[0]["errors"]
    order = np.argsort(-np.where(correct, -1, confidence), kind="stable")[:50]
    assert [row["id"] for row in errors] == order.tolist()
    assert errors[0]["label"] == str(y[order[0]])
    assert errors[0]["predicted"] == str(p.argmax(1)[order[0]])


def test_every_number_has_an_interval_around_it(overconfident):
    *_, found = overconfident
    assert set(found.intervals) == set(found.metrics)
    for name, (low, high) in found.intervals.items():
        assert low <= found.metrics[name] <= high, name
    expected = {"accuracy", "nll", "brier", "ece", "ece_10", "ece_15", "ece_100", "aece", "mce", "classwise_ece",
                "smooth_ece", "overconfidence", "underconfidence", "mean_confidence", "aurc", "e_aurc", "augrc",
                "coverage_at_risk_0.01", "coverage_at_risk_0.02", "coverage_at_risk_0.05", "coverage_at_risk_0.1",
                "risk_at_coverage_0.8", "risk_at_coverage_0.9", "risk_at_coverage_0.95"}  # fmt: skip
    assert set(found.metrics) == expected


def test_overconfidence_is_found_and_temperature_scaling_advised(overconfident):
    *_, found = overconfident
    assert found.document["verdict"]["level"] == "poor"
    assert found.verdict.startswith("Overconfident")
    assert "Temperature scaling helps" in titles(found)
    fix = found.models[0]["fixes"][0]
    assert fix["high"] < 0
    assert "T from 2." in fix["fitted"] or "T = 2." in fix["fitted"]
    assert any("Temperature scaling" in line for line in found.advice)


def test_a_calibrated_model_is_trusted_and_left_alone():
    z, y = drawn(4000, 7, 1.0, 2)
    found = audit(Predictions.from_logits(z, y), replicates=100)
    assert found.document["verdict"]["level"] == "good"
    assert found.intervals["ece_15"][0] == 0
    assert "No bin is off beyond chance" in titles(found)
    assert "Temperature scaling helps" not in titles(found)


def test_underconfidence_is_found():
    z, y = drawn(3000, 7, 0.4, 3)
    found = audit(Predictions.from_logits(z, y), replicates=100)
    assert found.verdict.startswith("Underconfident")


def test_the_trace_of_label_smoothing_is_found():
    z, y = smoothed(6000, 4)
    found = audit(Predictions.from_logits(z, y), replicates=100)
    assert "The max logit knows of errors that the confidence does not" in titles(found)
    norm = found.models[0]["logits"]
    assert len(norm["msp"]) == len(norm["right_mean"]) == len(norm["wrong_mean"])


def test_logit_normalisation_is_advised_only_where_it_helps():
    rng = np.random.default_rng(5)
    honest, y = drawn(6000, 6, 1.0, 5)
    wrong = honest.argmax(1) != y
    # The same softmax up to scale noise, with wrong predictions blown up: a larger norm hides behind equal confidence.
    z = honest * np.where(wrong, 1.8, 1.0)[:, None] * rng.uniform(0.95, 1.05, (6000, 1))
    helped = audit(Predictions.from_logits(z, y), replicates=100).models[0]["fixes"][-1]
    plain = audit(Predictions.from_logits(honest, y), replicates=100).models[0]["fixes"][-1]
    assert helped["repair"] == plain["repair"] == "Logit normalisation"
    assert helped["high"] < 0
    assert plain["high"] >= 0


def test_a_bad_group_and_a_bad_class_are_named():
    z, y = drawn(6000, 5, 1.0, 6)
    rng = np.random.default_rng(6)
    site = rng.choice(["A", "B", "C"], 6000)
    z[site == "B"] *= 4
    found = audit(Predictions.from_logits(z, y, groups={"site": site}), replicates=50)
    rows = {row["name"]: row for row in found.models[0]["groups"][0]["rows"]}
    assert [name for name, row in rows.items() if row["flag"]] == ["B"]
    assert any("groups of site" in title for title in titles(found))
    z, y = drawn(6000, 5, 1.0, 7)
    z[:, 2] += 2.0  # class 2 is predicted far too often
    flagged = [row["name"] for row in audit(Predictions.from_logits(z, y), replicates=50).models[0]["classes_table"]
               if row["flag"]]  # fmt: skip
    assert "2" in flagged


def test_nothing_is_flagged_without_cause():
    """20 groups and 5 classes of a calibrated model, ten times: Holm's procedure flags one of all 5% of the time."""
    flagged = 0
    for seed in range(10):
        z, y = drawn(2000, 5, 1.0, 100 + seed)
        group = np.random.default_rng(seed).integers(0, 20, 2000)
        found = audit(Predictions.from_logits(z, y, groups={"g": group}), replicates=20)
        flagged += any(row["flag"] for row in found.models[0]["groups"][0]["rows"])
        flagged += any(row["flag"] for row in found.models[0]["classes_table"])
    assert flagged <= 3  # of 20


def test_too_little_data_is_said():
    z, y = drawn(30, 4, 3.0, 8)
    found = audit(Predictions.from_logits(z, y), replicates=50)
    assert found.document["verdict"]["level"] == "unknown"
    assert "Little data" in titles(found)
    one = audit(Predictions.from_logits(z[:1], y[:1]), replicates=50)
    assert one.document["verdict"]["level"] == "unknown"


@pytest.mark.parametrize("right", [True, False])
def test_all_right_and_all_wrong(right):
    z, _ = drawn(300, 4, 2.0, 9)
    y = z.argmax(1) if right else z.argmin(1)
    found = audit(Predictions.from_logits(z, y), replicates=50)
    json.loads(found.to_json())
    assert found.metrics["accuracy"] == float(right)
    assert math.isnan(found.metrics["overconfidence" if right else "underconfidence"])


def test_confidences_alone():
    rng = np.random.default_rng(10)
    c = rng.uniform(0.4, 1, 2000)
    found = audit(Predictions.from_confidence(c, rng.random(2000) < c - 0.2), replicates=50)
    assert found.verdict.startswith("Overconfident")
    assert "nll" not in found.metrics
    assert found.models[0]["fixes"] == []
    assert found.metrics["ece_15"] == pytest.approx(0.2, abs=0.04)


def test_probabilities_give_what_logits_give(overconfident):
    z, y, found = overconfident
    p = np.exp(z - z.max(1, keepdims=True))
    again = audit(Predictions.from_probabilities(p / p.sum(1, keepdims=True), y), replicates=100)
    for name in ("ece_15", "aurc", "nll", "classwise_ece", "accuracy"):
        assert again.metrics[name] == pytest.approx(found.metrics[name], abs=1e-6), name


def test_segmentation_pools_pixels_and_ignores_void():
    rng = np.random.default_rng(11)
    z = 3 * rng.standard_normal((4, 3, 8, 9))
    y = z.argmax(1)
    y[rng.random(y.shape) < 0.4] = 0
    y[:, :2] = 255
    found = audit(Predictions.from_logits(z, y, kind="segmentation", ignore_index=255), replicates=50)
    keep = y != 255
    flat = audit(Predictions.from_logits(np.moveaxis(z, 1, -1)[keep], y[keep]), replicates=50)
    assert found.models[0]["samples"] == keep.sum()
    for name, value in flat.metrics.items():
        assert found.metrics[name] == pytest.approx(value, abs=1e-9, nan_ok=True), name


def test_a_file_in_pieces_gives_what_the_whole_gives(tmp_path):
    z, y = drawn(3000, 4, 2.0, 12)
    site = np.array(["x", "y"])[np.arange(3000) % 2]
    whole = Predictions.from_logits(z, y, groups={"site": site})
    for i in range(3):
        whole.samples(slice(1000 * i, 1000 * (i + 1))).save(tmp_path / f"part-{i}.parquet")
    first = audit(whole, replicates=50)
    again = audit(Predictions.open(tmp_path), replicates=50)
    assert again.metrics == pytest.approx(first.metrics)
    for row, other in zip(again.models[0]["groups"][0]["rows"], first.models[0]["groups"][0]["rows"], strict=True):
        assert row == pytest.approx(other, abs=1e-9)
    assert [e["id"] for e in again.models[0]["errors"]] == [e["id"] for e in first.models[0]["errors"]]


def test_models_are_compared_on_the_same_samples_only():
    z, y = drawn(1500, 5, 2.0, 13)
    same = {"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(z / 2, y)}
    comparison = audit(same, replicates=100).document["comparisons"][0]
    rows = {row["label"]: row for row in comparison["rows"]}
    assert rows["Accuracy"]["difference"] == 0
    assert rows["ECE (15 bins)"]["high"] < 0
    other = {"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(z, np.roll(y, 1))}
    found = audit(other, replicates=50)
    assert found.document["comparisons"] == []
    assert any("labels are not the same" in note for note in found.models[1]["notes"])
    shorter = {"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(z[1:], y[1:])}
    assert any("1,499 samples" in note for note in audit(shorter, replicates=50).models[1]["notes"])


def test_held_out_data_must_fit():
    z, y = drawn(200, 5, 2.0, 14)
    with pytest.raises(ValueError, match="same classes"):
        audit(Predictions.from_logits(z, y), val=Predictions.from_logits(z[:, :4], y % 4))
    with pytest.raises(ValueError, match="no group column 'town'"):
        audit(Predictions.from_logits(z, y), groups=["town"])
    with pytest.raises(ValueError, match="are the audited ones"):
        audit(Predictions.from_logits(z, y), val=Predictions.from_logits(z, y))
    with pytest.raises(ValueError, match="not fitted on test data"):
        audit(Predictions.from_logits(z, y), val=Predictions.from_logits(z + 1, y, split="test"))
    with pytest.raises(ValueError, match=r"audit takes Predictions.*Predictions\.open"):
        audit("test.npz")


@pytest.mark.parametrize("size", [200, 400, 1500])
def test_a_bad_model_is_not_trusted_for_lack_of_data(size):
    for seed in range(5):
        z, y = drawn(size, 6, 2.0, 40 + seed)
        found = audit(Predictions.from_logits(z, y), replicates=50)
        assert found.document["verdict"]["level"] == "poor", found.verdict
        assert found.verdict.startswith("Overconfident")


def test_a_calibrated_model_with_little_data_is_not_called_safe():
    z, y = drawn(150, 6, 1.0, 50)
    found = audit(Predictions.from_logits(z, y), replicates=50)
    assert found.document["verdict"]["level"] == "unknown"
    assert "could be up to" in found.verdict


def test_many_small_classes_of_a_calibrated_model_are_left_alone():
    flagged = 0
    for seed in range(4):
        z, y = drawn(3000, 300, 1.0, 60 + seed)
        table = audit(Predictions.from_logits(z, y), replicates=20).models[0]["classes_table"]
        flagged += any(row["flag"] for row in table)
    assert flagged <= 1


def test_images_not_pixels_are_drawn():
    """20 images, right or wrong as a whole: as much is known of the accuracy as from 20 samples."""
    rng = np.random.default_rng(70)
    z = np.zeros((20, 2, 6, 6))
    z[:, 0] = 1.0
    y = np.repeat(rng.integers(0, 2, 20), 36).reshape(20, 6, 6)
    low, high = audit(Predictions.from_logits(z, y, kind="segmentation"), replicates=200).intervals["accuracy"]
    assert high - low > 0.3


def test_a_label_of_probability_zero_is_said():
    p = np.array([[1.0, 0.0], [0.5, 0.5]] * 60)
    found = audit(Predictions.from_probabilities(p, np.array([1, 0] * 60)), replicates=50)
    row = next(one for one in found.models[0]["metrics"] if one["name"] == "nll")
    assert row["value"] is None
    assert "60 samples give their label probability 0" in row["note"]


def test_command_writes_report_and_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    z, y = drawn(800, 3, 2.5, 15)
    Predictions.from_logits(z, y, class_names=["cat", "dog", "<b>fox"]).save("test.npz")
    Predictions.from_logits(z / 2.5, y).save("fixed.npz")
    Predictions.from_logits(*drawn(500, 3, 2.5, 18)).save("val.npz")
    with pytest.raises(SystemExit) as stop:
        main(["audit", "test.npz", "fixed.npz", "--val", "val.npz", "--replicates", "50", "-o", "out/r.html"])
    assert stop.value.code == 0
    out = capsys.readouterr()
    assert "Overconfident" in out.out
    assert "On the same samples" in out.out
    assert "wrote out/r.html" in out.err
    page = (tmp_path / "out" / "r.html").read_text()
    assert "&lt;b&gt;fox" in page
    assert "<b>fox" not in page
    assert "calibrant audit test.npz fixed.npz --val val.npz --replicates 50 -o out/r.html" in page
    with pytest.raises(SystemExit):
        main(["audit", "test.npz", "--json", "--replicates", "50", "-o", "none"])
    document = json.loads(capsys.readouterr().out)
    assert document["models"][0]["samples"] == 800
    assert not (tmp_path / "report.html").exists()


def test_a_newcomers_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    z, y = drawn(300, 3, 2.0, 16)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    names = ["cat", "dog", "fox"]
    rows = [
        f"{names[k]},{a:.6f},{b:.6f},{c:.6f},{'north' if a > b else 'south'}" for k, (a, b, c) in zip(y, p, strict=True)
    ]
    (tmp_path / "mine.csv").write_text("truth,cat,dog,fox,site\n" + "\n".join(rows) + "\n")
    columns = ["--column", "labels=truth", "--column", "probabilities=cat,dog,fox"]
    with pytest.raises(SystemExit) as stop:
        main(["audit", "mine.csv", *columns, "--group", "site", "--replicates", "50"])
    assert stop.value.code == 0, capsys.readouterr().err
    assert "300 samples" in capsys.readouterr().out
    assert "north" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit", "missing.npz"], "missing.npz"),
        (["audit", "a.npz", "a.npz"], "given twice"),
        (["audit", "a.npz", "--column", "labels"], "ours=yours"),
        (["audit", "a.npz", "--level", "1.5"], "level"),
        (["audit", "a.npz", "--group", "site"], "site"),
        (["audit"], "Missing argument"),
    ],
)
def test_bad_input_is_one_line(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    z, y = drawn(60, 3, 1.0, 17)
    Predictions.from_logits(z, y).save("a.npz")
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert len(error.splitlines()) == 1
