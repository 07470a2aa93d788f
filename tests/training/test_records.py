"""Damaged results and facts of a run: never computed on, and the sentence says which file and what to do."""

import json
import math

import pytest

from calibrant.training import load, load_model, train
from calibrant.training.finished_run import example_inputs
from calibrant.training.records import (
    DamagedError,
    Failed,
    ModelFacts,
    Result,
    check_record,
    read_record,
    with_checksum,
)
from calibrant.training.run_folder import RunFolder
from tests.helpers.errors import facts

NO_RECORDS = [b"", b"\0" * 100, b"5", b"[]", b"{", b'{"a":' * 10**5, b'{"steps": 1, "steps": 2}', "{}".encode("utf-16")]


def changed(path, change):
    """Write a JSON file again after a change, as somebody would who knows of no checksum, and then who does."""
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))
    yield
    plain.pop("checksum", None)
    path.write_text(json.dumps(with_checksum(plain)))
    yield


def put(*places, value):
    def change(plain):
        *parents, last = places
        for parent in parents:
            plain = plain[parent]
        if value is None:
            del plain[last]
        else:
            plain[last] = value

    return change


@pytest.mark.parametrize("data", NO_RECORDS, ids=range(len(NO_RECORDS)))
def test_a_result_that_is_none_does_not_count_as_finished(data, finished, recipe, refused):
    (finished / "result.json").write_bytes(data)
    said = refused("train", recipe, "-o", finished, "--resume")
    assert str(finished / "result.json") in said
    assert "--resume" in said
    assert (finished / "result.json").read_bytes() == data


@pytest.mark.parametrize(
    "change",
    [
        put("sets", value=None),
        put("sets", "test", value=None),
        put("sets", "test", value=[]),
        put("sets", "test", "accuracy", value=None),
        put("sets", "test", "accuracy", value=True),
        put("sets", "test", "accuracy", value=1.5),
        put("sets", "test", "nll", value=-0.5),
        put("sets", "test", "accurracy", value=0.5),
        put("sets", "../test", value={}),
        put("sets", "train", value={"accuracy": 0.5}),
        put("steps", value=0),
        put("steps", value=3),
        put("steps", value=4.0),
        put("history", value={}),
        put("history", value=[]),
        put("history", 0, value=5),
        put("history", 1, "epoch", value=3),
        put("history", 1, "step", value=99),
        put("history", 0, "val_ece", value=-1.0),
        put("history", 0, "nonsense", value=1),
        put("more", value=1),
    ],
    ids=range(21),
)
def test_every_damage_of_a_result_is_found(change, finished, recipe):
    """With the old checksum and with one that fits."""
    plan = load(recipe)
    for _ in changed(finished / "result.json", change):
        with pytest.raises(DamagedError, match=facts("result.json")):
            RunFolder(finished).result(plan)


def test_a_digit_that_changed_is_found(finished):
    """No schema would: the accuracy is one that a model may have."""
    path = finished / "result.json"
    path.write_text(path.read_text().replace('"accuracy": 0.', '"accuracy": 0.1', 1))
    with pytest.raises(DamagedError, match=facts("result.json", "checksum")):
        RunFolder(finished).result()


def test_numbers_without_their_predictions_are_no_result(finished, recipe, refused):
    (finished / "test.npz").unlink()
    assert "test.npz" in refused("train", recipe, "-o", finished, "--resume")


def test_a_deleted_result_is_computed_again(finished, recipe):
    before = (finished / "result.json").read_text()
    (finished / "result.json").unlink()
    events = []
    train(load(recipe), finished, resume=True, event_log=lambda event, _: events.append(event))
    assert "step" not in events  # the training itself is not repeated
    assert (finished / "result.json").read_text() == before


def test_results_of_earlier_versions_are_read(finished):
    """They have no checksum, and NaN where there is no number."""
    path = finished / "result.json"
    plain = json.loads(path.read_text())
    del plain["checksum"]
    plain["sets"]["test"]["overconfidence"] = math.nan
    path.write_text(json.dumps(plain, indent=1))
    result = RunFolder(finished).result()
    assert math.isnan(result["sets"]["test"]["overconfidence"])
    assert result["sets"]["val"] == plain["sets"]["val"]
    assert result.keys() == {"sets", "steps", "history"}


def test_a_result_in_json_has_null_for_what_is_no_number(finished, recipe, capsys):
    from calibrant.cli import main

    path = finished / "result.json"
    plain = json.loads(path.read_text())
    del plain["checksum"]
    plain["sets"]["test"]["overconfidence"] = None
    path.write_text(json.dumps(plain))
    with pytest.raises(SystemExit) as stop:
        main(["train", str(recipe), "-o", str(finished), "--resume", "--json", "-q"])
    assert stop.value.code == 0
    assert json.loads(capsys.readouterr().out)["sets"]["test"]["overconfidence"] is None


@pytest.mark.parametrize("data", NO_RECORDS, ids=range(len(NO_RECORDS)))
def test_facts_that_are_none(data, finished):
    (finished / "model.json").write_bytes(data)
    for read in (load_model, example_inputs):
        with pytest.raises(DamagedError, match=facts("model.json", "result.json")):
            read(finished)


@pytest.mark.parametrize(
    "change",
    [
        put("classes", value=None),
        put("classes", value=10),
        put("classes", value=["a"]),
        put("classes", value=[1] * 10),
        put("input_shape", value=[3, 8, -8]),
        put("input_shape", value=[]),
        put("input_shape", value="3,8,8"),
        put("input_shape", value=[10**6, 10**6, 10**6]),
        put("input_shape", value=[1, 8, 8]),
        put("images", value=1),
        put("input_dtype", value="object"),
        put("vocabulary_size", value=-1),
        put("vocabulary_size", value=10**12),
        put("vocabulary_size", value=5),
        put("evil", value=1),
        put("classes", value=["a", "b"]),
    ],
    ids=range(16),
)
def test_every_damage_of_the_facts_is_found(change, finished):
    for _ in changed(finished / "model.json", change):
        with pytest.raises(ValueError, match=r"model\.json|model\.safetensors|model 'mlp'"):
            load_model(finished)


@pytest.mark.parametrize("data", [*NO_RECORDS, b'{"name": 3}', b'{"data": {}, "model": {}}'])
def test_a_recipe_that_is_none(data, finished, recipe, refused, tmp_path):
    (finished / "recipe.json").write_bytes(data)
    assert "recipe.json" in refused("predict", finished, "-o", tmp_path / "out.npz")
    refused("train", recipe, "-o", finished, "--resume")


@pytest.mark.parametrize("kind", [Result, ModelFacts, Failed])
@pytest.mark.parametrize("value", [None, 3, [], "x", {}, {"a": 1}, {"sets": 3}], ids=str)
def test_what_does_not_fit_a_schema_is_one_sentence(kind, value):
    with pytest.raises(ValueError, match=r".") as caught:
        check_record(value, kind)
    assert "\n" not in str(caught.value)


def test_a_file_that_changes_is_read_again(tmp_path):
    """What is remembered is what a text holds, not what a file held: however soon and however alike it changes."""
    file = tmp_path / "failed.json"
    for word in ("one", "two", "one"):
        file.write_text(json.dumps({"error": word, "lasting": True, "time": 1.0, "machine": "here"}))
        assert read_record(file, Failed, "delete it").error == word
    file.write_text("{}")
    with pytest.raises(DamagedError):
        read_record(file, Failed, "delete it")
