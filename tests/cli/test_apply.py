"""``calibrant apply`` and ``audit --policy``: the classes of the predictions are those of the policy, by name."""

import re

import numpy as np
import pyarrow.csv
import pytest

from calibrant import Policy, Predictions
from tests.cli.conftest import NAMES
from tests.helpers.errors import facts

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
    code, _, err = run("apply", "named.json", "new.csv", "-o", "decisions.csv", *more)
    assert (code, "decisions.csv" in err) == (0, True)
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


def test_other_classes_are_refused(here, refuse, drawn):
    logits, labels = drawn
    Predictions.from_logits(logits, labels, class_names=["cat", "dog", "fox"]).save(here / "other.npz")
    assert "cat, dog, fox" in refuse("apply", "named.json", "other.npz")
    Predictions.from_logits(logits[:, :2], labels % 2).save(here / "fewer.npz")
    assert "one per class" in refuse("apply", "named.json", "fewer.npz")
    assert "the policy is for 3 classes, got 2" in refuse("apply", "plain.json", "fewer.npz")
    # The user's own words win, and are compared with the policy's.
    text = refuse("apply", "named.json", "plain.npz", "--class-names", "cat,owl,dog")
    assert re.search(facts("cat, dog, owl", "cat, owl, dog"), text)


def test_without_names_the_order_is_the_policys(here, run, drawn):
    for policy in ("named", "plain"):
        for predictions in ("named", "plain"):
            code, _, _ = run("apply", f"{policy}.json", f"{predictions}.npz", "-o", "decisions.csv")
            assert code == 0
            expected = Policy.load(f"{policy}.json").decide(drawn[0]).labels
            assert decisions()["label"].to_pylist() == expected.tolist()


def test_an_audit_of_a_policy_has_its_names(here, run):
    code, out, _ = run("audit", "plain.npz", "--policy", "named.json", "-o", "none", "--json", "--replicates", "20")
    assert code == 0
    assert '"owl"' in out
    code, out, _ = run("audit", "plain.npz", "-o", "none", "--json", "--replicates", "20")
    assert '"owl"' not in out
