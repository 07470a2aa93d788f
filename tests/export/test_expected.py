"""A graph's answers against expected ones, in every form that they may have."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from calibrant import Predictions
from calibrant.export import export_onnx
from calibrant.policy import Decisions, apply_policy
from tests.helpers.errors import facts
from tests.helpers.exports import WEIGHT, C, build, linear, make_policy

onnx = pytest.importorskip("onnx")
helper, T = onnx.helper, onnx.TensorProto

ROWS = np.random.default_rng(3).standard_normal((300, 4)).astype(np.float32)
LOGITS = ROWS @ WEIGHT
NAMES = tuple("abcde")


def permuted(order):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["right"]),
        helper.make_node("Gather", ["right", "order"], ["z"], axis=1),
    ]
    weights = {"w": WEIGHT, "order": np.array(order, np.int64)}
    return build(nodes, [("z", T.FLOAT, ["N", C])], weights=weights)


def forms(policy, folder):
    """What may be expected, by a title: predictions, decisions and labels, as objects and as files."""
    p = Predictions.from_logits(LOGITS, np.zeros(300, int), class_names=policy.class_names)
    made = {"predictions": p, "decisions": policy.decide(LOGITS), "labels": policy.decide(LOGITS).labels}
    for suffix in (".npz", ".csv", ".parquet", ".safetensors", ".jsonl"):
        made[f"predictions{suffix}"] = folder / f"val{suffix}"
        p.save(folder / f"val{suffix}")
    for suffix in (".npz", ".csv", ".parquet"):
        made[f"decisions{suffix}"] = folder / f"decisions{suffix}"
        apply_policy(policy, p, folder / f"decisions{suffix}")
    np.save(folder / "labels.npy", made["labels"])
    np.savez(folder / "labels.npz", labels=made["labels"])
    made |= {"labels.npy": folder / "labels.npy", "labels.npz": str(folder / "labels.npz")}
    if policy.class_names is not None:
        made["names"] = np.array(policy.class_names)[made["labels"]]
        np.savez(folder / "names.npz", predicted=made["names"])
        made["names.npz"] = folder / "names.npz"
    return made


@pytest.mark.slow
@pytest.mark.parametrize("names", [None, NAMES, tuple("34567")])
def test_every_form_confirms_the_right_graph_and_refuses_a_permuted_one(names, tmp_path):
    policy = make_policy(class_names=names)
    for title, expected in forms(policy, tmp_path).items():
        if names == tuple("34567") and title in ("labels", "labels.npy", "labels.npz"):
            with pytest.raises(ValueError, match=facts("label")):  # positions beside names that are numbers
                export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), inputs=ROWS, expected=expected)
            continue
        done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), inputs=ROWS, expected=expected)
        check, named = done.checks[-1], str(expected) if isinstance(expected, str | Path) else ""
        assert (check.against, check.rows, check.differing) == ("expected", 300, 0), title
        assert bool(done.not_checked) == (title.startswith(("labels", "names"))), title
        with pytest.raises(ValueError, match=facts("of 300 rows", named)):
            export_onnx(
                policy, tmp_path / "n.onnx", onnx_model=permuted([1, 2, 3, 4, 0]), inputs=ROWS, expected=expected
            )
        assert not (tmp_path / "n.onnx").exists()


def test_a_row_in_a_hundred_may_differ_and_is_counted(tmp_path):
    policy = make_policy()
    labels = policy.decide(LOGITS).labels.copy()
    labels[:3] = (labels[:3] + 1) % C
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), inputs=ROWS, expected=labels)
    assert done.checks[-1].differing == 3
    labels[3] = (labels[3] + 1) % C
    with pytest.raises(ValueError, match=facts("4 of 300 rows")):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=linear(), inputs=ROWS, expected=labels)


def test_the_same_classes_with_other_probabilities_are_a_contradiction(tmp_path):
    policy = make_policy()
    expected = Predictions.from_logits(LOGITS * 1.2, np.zeros(300, int))
    with pytest.raises(ValueError, match=facts("300 rows", " 0 ")):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), inputs=ROWS, expected=expected)
    rounded = Predictions.from_logits(LOGITS.round(2), np.zeros(300, int))
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), inputs=ROWS, expected=rounded)
    assert done.checks[-1].differing <= 3


def test_groups_come_with_the_predictions(tmp_path):
    policy = make_policy(groups={"north": 0.4, "south": 0.8})
    site = np.array(["north", "south", "south"])[np.arange(300) % 3]
    expected = Predictions.from_logits(LOGITS, np.zeros(300, int), groups={"site": site})
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), inputs=ROWS, expected=expected)
    assert done.checks[-1].differing == 0
    wrong = {"x": ROWS, "group": (site == "north").astype(np.int64)}
    with pytest.raises(ValueError, match=facts("of 300 rows")):
        export_onnx(
            policy, tmp_path / "m.onnx", onnx_model=linear(), inputs=wrong, expected=policy.decide(LOGITS, site)
        )


class Net(nn.Module):
    def __init__(self, order):
        super().__init__()
        self.last = nn.Linear(4, C, bias=False)
        self.last.weight.data = torch.from_numpy(WEIGHT.T[list(order)].copy())

    def forward(self, x):
        return self.last(x)


class WithLabel(Net):
    """Its own label beside its logits, which may be in another order."""

    def __init__(self, order, wrap):
        super().__init__(order)
        self.right, self.wrap = Net(range(C)), wrap

    def forward(self, x):
        return self.wrap(super().forward(x), self.right(x).argmax(1))


@pytest.mark.slow
def test_a_pytorch_model_is_held_against_its_own_label(tmp_path):
    policy = make_policy(class_names=NAMES)
    right = WithLabel(range(C), lambda z, label: {"label": label, "scores": z})
    expected = policy.decide(LOGITS)
    done = export_onnx(policy, tmp_path / "m.onnx", model=right, inputs=ROWS, output="scores", expected=expected)
    assert [(check.against, check.rows, check.differing) for check in done.checks[1:]] == [
        ("expected", 300, 0), ("label output", 300, 0)
    ]  # fmt: skip
    assert [tensor.name for tensor in done.outputs] == ["label", "confidence", "accept", "probabilities"]
    wrong = WithLabel([4, 3, 2, 1, 0], lambda z, label: (z, label, label.shape))
    with pytest.raises(ValueError, match=facts("of 300 rows")):
        export_onnx(policy, tmp_path / "n.onnx", model=wrong, inputs=ROWS, output="0")
    assert export_onnx(policy, tmp_path / "n.onnx", model=wrong, inputs=ROWS, output="0", labels="none").not_checked
    both = WithLabel(range(C), lambda z, label: {"logits": z, "input": label, "length": label + 1})
    with pytest.raises(ValueError, match=facts("input (INT64 [2])", "length (INT64 [2])", "--labels")):
        export_onnx(policy, tmp_path / "o.onnx", model=both, inputs=ROWS, output="logits")
    done = export_onnx(policy, tmp_path / "o.onnx", model=both, inputs=ROWS, output="logits", labels="input")
    assert [(check.against, check.rows, check.differing) for check in done.checks[1:]] == [("label output", 300, 0)]


def test_masks_are_compared_pixel_by_pixel(tmp_path):
    policy = make_policy(kind="segmentation")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["z"]),
        helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0),
    ]
    weights = {"w": WEIGHT.T.reshape(C, 4, 1, 1).copy()}
    outputs = [("z", T.FLOAT, ["N", C, "H", "W"]), ("label", T.INT64, ["N", "H", "W"])]
    model = build(nodes, outputs, inputs=[("x", T.FLOAT, ["N", 4, "H", "W"])], weights=weights)
    x = ROWS.reshape(5, 6, 10, 4).transpose(0, 3, 1, 2).copy()
    z = np.einsum("nihw,ic->nchw", x, WEIGHT)
    p = Predictions.from_logits(z, np.zeros((5, 6, 10), int), kind="segmentation")
    apply_policy(policy, p, tmp_path / "masks.npz")
    for expected in (p, tmp_path / "masks.npz"):
        done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, inputs=x, expected=expected)
        assert [(check.against, check.rows, check.differing) for check in done.checks[1:]] == [
            ("expected", 300, 0),
            ("label output", 300, 0),
        ]


@pytest.mark.parametrize(
    ("expected", "inputs", "told"),
    [
        (np.zeros(300, int), None, "inputs"),
        (np.zeros(299, int), ROWS, "299 300"),
        (np.full(300, 5), ROWS, "0 4"),
        (np.zeros(300), ROWS, "labels"),
        (np.array(["a"] * 300), ROWS, "labels"),
        (Decisions(np.zeros(300, int), np.zeros(299), None), ROWS, "confidence"),
        (Predictions.from_probabilities(np.full((300, 5), 0.2), np.zeros(300, int)), ROWS, "logits"),
        ("none.npz", ROWS, "none.npz"),
    ],
)
def test_what_cannot_be_expected_is_refused(expected, inputs, told, tmp_path):
    with pytest.raises(ValueError, match=facts(*told.split())):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=linear(), inputs=inputs, expected=expected)
    with pytest.raises(ValueError, match=facts("expected")):
        export_onnx(make_policy(), tmp_path / "m.onnx", expected=expected)
    assert not list(tmp_path.iterdir())
