"""PyTorch models and their policies become one graph."""

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.export import export_onnx
from calibrant.posthoc import TemperatureScaling
from tests.helpers.errors import facts
from tests.helpers.exports import SCORES, C, calibrators, data, limit_of, make_policy, run, trial_logits

pytestmark = pytest.mark.slow

pytest.importorskip("onnxruntime")


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
    with pytest.raises(ValueError, match=facts("features, out")):
        export_onnx(policy, tmp_path / "n.onnx", model=model, input_shape=(3, 6, 5))
    with pytest.raises(ValueError, match=facts("'logits'", "features, out")):
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
    (remark,) = done.remarks
    assert "4 x 3" in remark


def test_a_half_precision_model_differs_by_rounding_alone(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, C)).half()
    done = export_onnx(make_policy(limit=0.3), tmp_path / "h.onnx", model=model, input_shape=(6,))
    assert done.rows == 34
    assert done.difference <= 1e-5
    assert not done.undecided or "rounding" in done.remarks[-1]
    assert run(tmp_path / "h.onnx", input=np.ones((3, 6), np.float16))["label"].shape == (3,)


def test_what_pytorch_cannot_export_is_one_sentence(tmp_path, capfd):
    with pytest.raises(ValueError, match=facts("PyTorch")) as caught:
        export_onnx(make_policy(), tmp_path / "b.onnx", model=Branching(), input_shape=(4,))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_torch_models_that_do_not_fit_are_refused(tmp_path):
    shares = {"policy": make_policy(takes="probabilities")}
    for model, shape, told, more in (
        (Net(), None, "input_shape", {}),
        (Net(classes=7), (3, 6, 5), "[N, 5]|[2, 7]", {}),
        (Dense(), (3, 6, 5), "classification", {}),
        (Net(), (4, 6, 5), "[N, 4, 6, 5]", {}),
        (lambda x: x, (3,), "torch.nn.Module|function", {}),
        (nn.Sequential(Net(), nn.Softmax(1)), (3, 6, 5), "probabilities", {}),
        (Net(), (3, 6, 5), "probabilities", shares),
    ):
        with pytest.raises(ValueError, match=facts(*told.split("|"))):
            export_onnx(**{"policy": make_policy()} | more, path=tmp_path / "x.onnx", model=model, input_shape=shape)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
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
