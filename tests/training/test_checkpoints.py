"""Damaged checkpoints: each damage is refused in one sentence, and the files stay for whoever repairs them."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from calibrant.training import checkpoints, load, train
from calibrant.training.checkpoints import restore_run
from calibrant.training.classification import Classification
from calibrant.training.datasets import load_sets
from calibrant.training.distributed import make_fabric
from calibrant.training.optimisers import OptimiserSettings
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


def test_a_tensor_that_was_taken_out_is_missed(damage, refusal):
    """Of one parameter the optimiser may know nothing; the file says how many tensors it was written with."""
    fewer = lambda tensors: {k: v for k, v in tensors.items() if not k.startswith("optimiser/3")}  # noqa: E731
    said = refusal(damage(fewer, header={"tensors": "8"}))
    assert "8" in said
    assert "7" in said


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


@pytest.mark.parametrize("loss", ["crl", "cape"])
def test_a_run_with_a_memory_resumes(loss, recipe, tmp_path):
    """The memory grows with the ids that were seen; a checkpoint may have any length up to the data's."""
    plan = load(recipe, [f"loss={{name='{loss}'}}", "training.epochs=1"])
    train(plan, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    events = []
    train(plan, tmp_path / "run", resume=True, event_log=lambda event, _: events.append(event))
    assert "step" not in events
    assert events[0] == "start"
