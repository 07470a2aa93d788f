"""Damaged files of every format: whatever bytes come in, a value comes out or an error in one sentence, and soon."""

import random

import pytest

from calibrant.data import layouts
from tests.fuzz.engine import attempt
from tests.fuzz.targets import TARGETS, Target
from tests.helpers.data_trees import TREES, hostile_json

pytestmark = pytest.mark.slow
#: Damages of each case; `./dev fuzz` does more, and those of a whole run folder.
DAMAGES, FLIPS = 50, 100
CASES = {name: target for name, target in TARGETS.items() if name != "run"}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    target, folder = CASES[request.param], tmp_path_factory.mktemp("fuzz") / "case"
    target.make(folder)
    return target, folder, target.load(folder)


def test_a_damaged_file_is_read_or_refused(case, request):
    target, folder, valid = case
    outcomes = [attempt(target, folder, random.Random(seed), valid, single_bit=False) for seed in range(DAMAGES)]
    assert [outcome for outcome in outcomes if outcome[0] == "finding"] == []
    assert ("refused", "") in outcomes or "data-" in request.node.name  # where a single image is refused


def test_a_flipped_bit_is_never_read_as_something_else(case):
    target, folder, valid = case
    if target.checksummed:
        outcomes = [attempt(target, folder, random.Random(seed), valid, single_bit=True) for seed in range(FLIPS)]
        assert [outcome for outcome in outcomes if outcome[0] == "finding"] == []


def test_every_layout_is_damaged():
    assert {layout for _, layout, _, _ in TREES.values()} == set(layouts()) - {"digits", "scenes", "scene-masks"}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("coco", "annotations/instances_val2017.json"),
        ("calibrant", "dataset.json"),
        ("open-images", "bbox_labels_600_hierarchy.json"),
    ],
)
def test_json_of_other_kinds_is_read_or_refused(tmp_path, name, file):
    target = CASES[f"data-{name}"]
    target.make(tmp_path / "case")
    path = tmp_path / "case" / "set" / file
    for document in hostile_json(path)[::3]:

        def load(folder, document=document):
            path.write_bytes(document)
            return target.load(folder)

        outcome, reason = attempt(Target(target.make, load), tmp_path / "case", random.Random(0), None)
        assert outcome != "finding", (document, reason)


def complain(folder):
    raise ValueError("two\nlines")


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (lambda folder: 1, "flipped bit"),
        (lambda folder: 1 / 0, "ZeroDivisionError"),
        (lambda folder: int("a"), ""),
        (complain, "several lines"),
    ],
)
def test_findings_are_found(tmp_path, load, reason):
    (tmp_path / "a").write_bytes(b"valid")
    outcome, said = attempt(Target(lambda folder: None, load, True), tmp_path, random.Random(0), 2, single_bit=True)
    assert outcome == ("finding" if reason else "refused")
    assert reason in said
