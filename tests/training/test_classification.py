"""Classification as a task: weights of micro-batches and validation. Oracles: counts by hand; NumPy on the logits."""

import numpy as np
import pytest
import torch

from calibrant.predictions import Predictions
from calibrant.training import (
    RunFolder,
    checkpoints,
    estimate,
    load,
    load_model,
    load_sets,
    make_fabric,
    predict_run,
    prepare_run,
    train,
)
from calibrant.training.classification import Classification
from calibrant.training.finished_run import last_epoch
from tests.helpers.errors import facts


def test_validation_is_that_of_the_predictions(runs):
    """The run's last validation of the model that it keeps, against accuracy and NLL of what it wrote."""
    folder = RunFolder(runs / "finished")
    predictions = Predictions.open(folder / "val.npz")
    logits, labels = np.asarray(predictions.logits, float), np.asarray(predictions.labels)
    accuracy = (logits.argmax(1) == labels).mean()
    best = max(entry["val_accuracy"] for entry in folder.result()["history"])
    assert best == pytest.approx(accuracy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.input_size=[3, 9, 9]"], facts("mlp", "[512, 3, 8, 8]")),
        (["data.channels=1"], facts("[512, 1, 8, 8]")),
        (["data.steps=[{step='resize', size=9}]"], facts("[512, 3, 9, 9]")),
        (["model={name='resnet18', in_channels=1, stem='32'}"], facts("resnet18")),
        (["model={name='vit_s_16', image_size=32}"], facts("vit_s_16")),
        (["model={name='gpcn'}"], facts("gpcn")),
        (["model={name='fasterrcnn_resnet50_fpn'}"], facts("fasterrcnn_resnet50_fpn")),
        (["model={name='deeplabv3plus_small'}"], facts("[2]")),
        (["model={name='timm/test_vit', img_size=32}"], facts("timm/test_vit")),
        (["loss={name='ce', weight=[1.0, 2.0]}"], facts("2", "10")),
        (["loss={name='crl'}", "mixing={name='mixup'}"], facts("CRL")),
        (["loss={name='calsalm'}", "data.val=", "training.keep=last"], facts("calsalm", "data.val", "data.hold_out")),
        (["data.text={}"], facts("data.text")),
        (["model={name='small_resnet'}", "training.batch_size=1"], facts("[1, 3, 8, 8]")),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_go_together_is_said_before_anything_is_written(overrides, words, recipe, tmp_path):
    plan = load(recipe, overrides)
    for attempt in (lambda: train(plan, tmp_path / "run"), lambda: estimate(plan)):
        with pytest.raises(ValueError, match=words) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def own(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_net.py").write_text("import torch, sys\nfrom torch import nn\n" + text)
    monkeypatch.delitem(__import__("sys").modules, "own_net", raising=False)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return x.flatten(1)[:, :7]", facts("[2, 7]", "[2, 3, 8, 8]", "10")),
        ("return x.flatten(1)[0, :10]", facts("[10]")),
        ("return {'logits': x}", facts("NoneType")),
        ("return None", facts("NoneType")),
        ("raise KeyError('weights')", facts("weights")),
        ("sys.exit(0)", facts("[2, 3, 8, 8]")),
        ("return x.view(3, 5)", facts("[2, 3, 8, 8]")),
    ],
)
def test_models_of_ones_own(body, words, recipe, tmp_path, monkeypatch):
    own(tmp_path, monkeypatch, f"class Net(nn.Linear):\n    def __init__(self, num_classes): super().__init__(4, 5)\n"
                               f"    def forward(self, x):\n        {body}\n")  # fmt: skip
    plan = load(recipe, ["model={name='own_net:Net'}"])
    with pytest.raises(ValueError, match=words):
        train(plan, tmp_path / "run", trust_code=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "loss", ["{name='deep_gamblers', payoff=3.0, pretraining=2}", "{name='sat', start=2, selective=true}"]
)
def test_a_loss_with_a_logit_more_trains_predicts_and_exports_the_classes(loss, recipe, tmp_path):
    """The network has 11 outputs for 10 classes; all that is measured, written or loaded are the logits of the 10."""
    plan = load(recipe, [f"loss={loss}", "training.epochs=4", "training.batch_size=64"])
    result = train(plan, tmp_path / "run")
    assert result["sets"]["test"]["accuracy"] > 0.8
    parts, _ = checkpoints.load(tmp_path / "run" / "model.safetensors")
    assert [len(value) for value in parts["model"].values()][-1] == 11
    written = Predictions.open(tmp_path / "run" / "test.npz")
    assert written.logits.shape == (450, 10)
    assert np.array_equal(predict_run(tmp_path / "run").logits, written.logits)
    model, _, classes = load_model(tmp_path / "run")
    assert len(classes) == model(torch.zeros(2, 3, 8, 8)).shape[1] == 10
    with pytest.raises(ValueError, match=facts("one logit")):
        last_epoch(tmp_path / "run")


def test_a_network_without_the_logit_that_the_loss_needs(recipe, tmp_path, monkeypatch):
    own(tmp_path, monkeypatch, "def Net(num_classes):\n    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))\n")
    plan = load(recipe, ["model={name='own_net:Net'}", "loss={name='deep_gamblers'}"])
    with pytest.raises(ValueError, match=facts("[2, 10]", "10 classes and 1 more", "[2, 11, ...]")):
        train(plan, tmp_path / "run", trust_code=True)


OWN = {
    "looks at values": "class Net(nn.Linear):\n    def __init__(self, num_classes): super().__init__(192, 10)\n"
    "    def forward(self, x):\n        assert float(x.max()) > 0\n        return super().forward(x.flatten(1))\n",
    "learns its sizes": "def Net(num_classes):\n    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))\n",
}


@pytest.mark.parametrize("which", OWN)
def test_a_model_that_shapes_alone_cannot_go_through_is_trained(which, recipe, tmp_path, monkeypatch):
    own(tmp_path, monkeypatch, OWN[which])
    result = train(load(recipe, ["model={name='own_net:Net'}"]), tmp_path / "run", trust_code=True)
    assert result["sets"]["test"]["accuracy"] > 0.2


@pytest.mark.parametrize("model", ["{name='mlp', input_size=[3, 8, 8], hidden=[8]}", "{name='small_cnn'}"])
def test_a_rehearsal_changes_nothing(model, recipe):
    """Neither weights, nor running means, nor modes, nor random numbers."""
    plan = load(recipe, [f"model={model}"])
    run = prepare_run(plan, make_fabric(plan, "cpu", 1, 1), load_sets(plan), Classification())
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    modes = [module.training for module in run.model.modules()]
    torch.manual_seed(5)
    run.task.rehearse(run)
    drawn = torch.rand(4)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(4))
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.model.state_dict().items())
    assert [module.training for module in run.model.modules()] == modes
    assert not run.has_begun


def test_a_batch_that_is_larger_than_the_memory(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.training.classification.physical_memory", lambda: 1000)
    with pytest.raises(ValueError, match=facts("512", "[3, 8, 8]")):
        train(load(recipe), tmp_path / "run")


def test_a_diverged_dry_run_is_one_sentence(recipe, refused):
    words = [word for setting in ("optimiser.rate=1e6", "data.std=[1e-34]") for word in ("--set", setting)]
    assert "the loss is" in refused("train", recipe, "--dry-run", *words)
