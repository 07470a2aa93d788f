"""Damaged checkpoints, results and facts of a run: never computed on; the sentence says which file and what to do."""

import json
import math

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from calibrant.training import checkpoints, load, load_model, train
from calibrant.training.checkpoints import restore_run
from calibrant.training.classification import Classification
from calibrant.training.datasets import load_sets
from calibrant.training.distributed import make_fabric
from calibrant.training.finished_run import example_inputs
from calibrant.training.optimisers import OptimiserSettings
from calibrant.training.records import DamagedError, Failed, read_record, with_checksum
from calibrant.training.run import prepare_run
from calibrant.training.run_folder import LAST, LOCK, RunFolder
from tests.helpers.errors import facts


def read(path):
    with safe_open(str(path), "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118 (it is no dict)


@pytest.fixture
def damage(unfinished):
    """Write the last checkpoint again with other tensors, state or header."""

    def write(tensors=None, state=None, header=None):
        ours, about = read(unfinished / LAST)
        tensors = ours if tensors is None else tensors(ours)
        about = about | {"tensors": str(len(tensors))} | (header or {})
        if state is not None:
            state = state(json.loads(about["state"]))
            about["state"] = state if isinstance(state, str) else json.dumps(state)
        save_file(tensors, str(unfinished / LAST), metadata=about)
        return unfinished

    return write


@pytest.fixture(scope="module")
def parts(runs):
    """What a run is made of besides its folder; it takes longer to make than a checkpoint to be refused."""
    plan = load(runs / "digits.toml")
    return plan, make_fabric(plan, "cpu", 1, 1), load_sets(plan)


@pytest.fixture
def refusal(parts):
    """What is said of a damaged folder."""

    def resume(folder):
        with pytest.raises(ValueError, match=facts("last.safetensors")) as caught:
            restore_run(prepare_run(*parts, Classification()), RunFolder(folder))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return resume


def test_a_refusal_is_one_sentence_and_loses_nothing(damage, recipe, refused):
    folder = damage(state=lambda state: state | {"step": 3})
    (folder / LOCK).unlink(missing_ok=True)  # says who holds the folder, and so does change
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    said = refused("train", recipe, "-o", folder, "--resume")
    assert str(folder / LAST) in said
    (folder / LOCK).unlink()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("name", ["epoch", "batch", "step", "history", "best"])
@pytest.mark.parametrize("value", [None, -1, 10**12, 1.5, "x", [], {}, True, [{}], [[1]]], ids=str)
def test_a_state_that_does_not_fit(name, value, damage, refusal):
    folder = damage(state=lambda state: state | {name: value})
    refusal(folder)


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (lambda s: s | {"evil": 1}, "evil"),
        (lambda s: {k: v for k, v in s.items() if k != "step"}, "step"),
        (lambda s: "[]", ""),
        (lambda s: "", ""),
        (lambda s: "[" * 10**5 + "]" * 10**5, ""),
        (lambda s: '{"a":' * 10**5 + "1" + "}" * 10**5, ""),
        (lambda s: json.dumps(s).replace("0.", "NaN", 1), ""),
        (lambda s: s | {"step": 1}, "1"),
        (lambda s: s | {"step": 3}, "3"),
        (lambda s: s | {"step": 0, "epoch": 0, "history": []}, "0"),
        (lambda s: s | {"epoch": 1}, "1"),
        (lambda s: s | {"batch": 1}, "step"),
        (lambda s: s | {"history": s["history"][:1]}, "2"),
        (lambda s: s | {"history": [s["history"][0] | {"val_accuracy": 7.0}, *s["history"][1:]]}, "accuracy"),
        (lambda s: s | {"history": [s["history"][0] | {"val_nosuch": 0.5}, *s["history"][1:]]}, "nosuch"),
        (lambda s: s | {"best": 0.123}, "best"),
        (lambda s: s | {"scaler": {"scale": 1.0}}, "scaler"),
    ],
    ids=range(17),
)
def test_a_state_that_is_no_state_of_this_run(state, word, damage, refusal):
    assert word in refusal(damage(state=state))


def changed(name, change):
    return lambda tensors: tensors | {name: change(tensors[name])}


@pytest.mark.parametrize("name", ["model/layers.0.weight", "model/layers.2.bias", "optimiser/0/momentum_buffer"])
@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: torch.full_like(t, float("nan")), ""),
        (lambda t: t.clone().index_fill_(0, torch.tensor([0]), float("inf")), ""),
        (lambda t: t.half(), "torch.float16"),
        (lambda t: t.double(), "torch.float64"),
        (lambda t: t.long(), "torch.int64"),
        (lambda t: t.flatten()[:1].clone(), "[1]"),
        (lambda t: t.unsqueeze(0).contiguous(), "[1, "),
    ],
    ids=["nan", "inf", "half", "double", "long", "short", "deep"],
)
def test_tensors_that_do_not_fit(name, change, word, damage, refusal):
    said = refusal(damage(changed(name, change)))
    assert name in said
    assert word in said


@pytest.mark.parametrize(
    ("change", "word"),
    [
        *(
            (lambda tensors, name=name: {k: v for k, v in tensors.items() if k != name}, name)
            for name in ("model/layers.0.weight", "model/layers.2.bias")
        ),
        *(
            (lambda tensors, name=name: tensors | {name: torch.zeros(3)}, name)
            for name in ("model/evil", "optimiser/0/evil", "optimiser/x/y", "optimiser/99/momentum_buffer", "loss/evil",
                         "evil")
        ),
        (lambda tensors: {k: v for k, v in tensors.items() if "optimiser" not in k}, "optimiser"),
    ],
)  # fmt: skip
def test_tensors_that_are_missing_or_have_no_place(change, word, damage, refusal):
    assert word.removeprefix("model/") in refusal(damage(change))


@pytest.mark.parametrize("header", [{"format": "x"}, {"version": "2"}, {"tensors": "99"}], ids=str)
def test_another_header(header, damage, refusal):
    refusal(damage(header=header))


@pytest.mark.parametrize(
    "data", [b"", bytes(1000), b"\x10\0\0\0\0\0\0\0{}", None], ids=["none", "zeros", "header", "half"]
)
@pytest.mark.parametrize("name", ["last.safetensors", "best.safetensors", "model.safetensors"])
def test_files_that_are_no_checkpoints(name, data, unfinished, recipe, refused, tmp_path):
    whole = (unfinished / name).read_bytes()
    (unfinished / name).write_bytes(whole[: len(whole) // 2] if data is None else data)
    if name == "model.safetensors":
        said = refused("predict", unfinished, "-o", tmp_path / "out.npz")
        assert not (tmp_path / "out.npz").exists()
    else:
        said = refused("train", recipe, "-o", unfinished, "--resume")
    assert name in said
    (unfinished / "best.safetensors").unlink()  # nor without the best model so far
    assert "safetensors" in refused("train", recipe, "-o", unfinished, "--resume")


def test_only_the_model_is_read_to_predict(unfinished, tmp_path, command):
    """An optimiser that has lost its mind is nothing to a prediction; a damaged model is."""
    tensors, about = read(unfinished / LAST)
    tensors["optimiser/0/momentum_buffer"] = torch.full((3,), float("nan"))
    save_file(tensors, str(unfinished / LAST), metadata=about)
    words = ("predict", unfinished, "--checkpoint", "last", "-o", tmp_path / "out.npz", "-q")
    assert command(*words)[0] == 0
    save_file(tensors | {"model/layers.0.bias": torch.full((8,), float("inf"))}, str(unfinished / LAST), metadata=about)
    code, said = command(*words)
    assert code == 2
    assert "model/layers.0.bias" in said


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_what_is_expected_of_an_optimiser_is_what_it_has(name):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimiser = OptimiserSettings(name=name).build(model)
    model(torch.ones(5, 3)).sum().backward()
    optimiser.step()
    ours, expected = checkpoints.optimiser_tensors(optimiser), checkpoints.optimiser_like(optimiser)
    assert ours.keys() == expected.keys()
    assert all((ours[key].shape, ours[key].dtype) == (expected[key].shape, expected[key].dtype) for key in ours)


def test_numbers_that_do_not_exist_survive(recipe, tmp_path):
    """A model without errors has no overconfidence: null on disk, NaN in memory, and the run goes on."""
    progress = {"epoch": 1, "batch": 0, "step": 2, "best": 0.5}
    history = [{"epoch": 1, "step": 2, "val_overconfidence": float("nan")}]
    checkpoints.save(tmp_path / "a.safetensors", {"model": {"w": torch.zeros(2)}}, progress | {"history": history})
    _, state = checkpoints.load(tmp_path / "a.safetensors")
    assert state["history"][0]["val_overconfidence"] is None
    assert checkpoints.read_state(state, tmp_path).history == state["history"]
    old = json.dumps(progress | {"history": history})  # as earlier versions wrote it
    assert "NaN" in old
    save_file({"model/w": torch.zeros(2)}, str(tmp_path / "b.safetensors"),
              metadata={"format": checkpoints.FORMAT, "version": "1", "state": old})  # fmt: skip
    assert checkpoints.load(tmp_path / "b.safetensors")[1] == state


@pytest.mark.parametrize("loss", ["name='crl'", "name='cape'", "name='calsalm'", "name='sat', start=0"])
def test_a_run_with_a_memory_resumes(loss, recipe, tmp_path):
    """The memory grows with the ids that were seen; a checkpoint may have any length up to the data's."""
    plan = load(recipe, [f"loss={{{loss}}}", "training.epochs=1"])
    train(plan, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    events = []
    train(plan, tmp_path / "run", resume=True, event_log=lambda event, _: events.append(event))
    assert "step" not in events
    assert events[0] == "start"


NO_RECORDS = [b"", b"\0" * 100, b"5", b"[]", b"{", b'{"a":' * 10**5, b'{"steps": 1, "steps": 2}', "{}".encode("utf-16")]


def rewritten(path, change):
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
    for _ in rewritten(finished / "result.json", change):
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
    for _ in rewritten(finished / "model.json", change):
        with pytest.raises(ValueError, match=r"model\.json|model\.safetensors|model 'mlp'"):
            load_model(finished)


@pytest.mark.parametrize("data", [*NO_RECORDS, b'{"name": 3}', b'{"data": {}, "model": {}}'])
def test_a_recipe_that_is_none(data, finished, recipe, refused, tmp_path):
    (finished / "recipe.json").write_bytes(data)
    assert "recipe.json" in refused("predict", finished, "-o", tmp_path / "out.npz")
    refused("train", recipe, "-o", finished, "--resume")


def test_a_file_that_changes_is_read_again(tmp_path):
    """What is remembered is what a text holds, not what a file held: however soon and however alike it changes."""
    file = tmp_path / "failed.json"
    for word in ("one", "two", "one"):
        file.write_text(json.dumps({"error": word, "lasting": True, "time": 1.0, "machine": "here"}))
        assert read_record(file, Failed, "delete it").error == word
    file.write_text("{}")
    with pytest.raises(DamagedError):
        read_record(file, Failed, "delete it")
