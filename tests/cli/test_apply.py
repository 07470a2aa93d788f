"""``calibrant apply`` and ``audit --policy``: the classes of the predictions are those of the policy, by name."""

import json

import numpy as np
import pyarrow.csv
import pytest

from calibrant import Policy, Predictions
from tests.cli.conftest import NAMES

TURNED = [2, 0, 1]


def written(path, columns):
    """A table of numbers as CSV."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(str(cell) for cell in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def decisions(path="decisions.csv"):
    return pyarrow.csv.read_csv(path)


@pytest.mark.parametrize("columns", ["logits_{number}", "logits.{name}", "z_{name}"])
@pytest.mark.parametrize("order", [[0, 1, 2], TURNED])
def test_a_file_without_labels_has_the_policys_names(here, run, drawn, columns, order):
    """Columns without names are taken in the policy's order, and those with names by name."""
    logits, _ = drawn
    numbered = "number" in columns
    order = [0, 1, 2] if numbered else order
    titles = [columns.format(number=i, name=NAMES[k]) for i, k in enumerate(order)]
    written(here / "new.csv", {title: logits[:, k] for title, k in zip(titles, order, strict=True)})
    more = ["--column", "logits=z_*"] if columns.startswith("z") else []
    code, out, err = run("apply", "named.json", "new.csv", "-o", "decisions.csv", *more, "--json")
    assert (code, "decisions.csv" in err) == (0, True)
    assert [json.loads(out)[name] for name in ("errors", "promise_kept")] == [None, "unknown"]
    expected = Policy.load("named.json").decide(logits)
    assert decisions()["label"].to_pylist() == expected.labels.tolist()
    assert decisions()["class_name"].to_pylist() == [NAMES[k] for k in expected.labels]
    assert decisions()["accept"].to_pylist() == expected.accept.tolist()


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".safetensors"])
@pytest.mark.parametrize("command", [["apply"], ["audit", "--replicates", "20", "--policy"]])
def test_classes_in_another_order_are_never_taken_by_position(here, refuse, drawn, command, suffix):
    logits, labels = drawn
    turned = Predictions.from_logits(
        logits[:, TURNED], np.argsort(TURNED)[labels], class_names=[NAMES[k] for k in TURNED]
    )
    turned.save(here / f"turned{suffix}")
    text = refuse(*command, "named.json", f"turned{suffix}")
    assert "owl, cat, dog" in text
    assert "cat, dog, owl" in text


def test_an_audit_of_a_policy_has_its_names(here, run):
    code, out, _ = run("audit", "plain.npz", "--policy", "named.json", "-o", "none", "--json", "--replicates", "20")
    assert code == 0
    assert '"owl"' in out
    code, out, _ = run("audit", "plain.npz", "-o", "none", "--json", "--replicates", "20")
    assert '"owl"' not in out
