"""The main commands give the values that were recorded; `./dev golden --write` after a change that was meant."""

import copy

import pytest

from tests.golden import runs
from tests.golden.cases import CASES


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if case.slow else []) for name, case in CASES.items()]
)
def test_golden_run(name, tmp_path):
    outcome = runs.run(CASES[name], tmp_path)
    differences = list(runs.compare(runs.read(name), outcome, trained=CASES[name].slow))
    assert not differences, "\n".join(differences[:20])


def test_a_changed_number_name_or_entry_is_a_difference():
    recorded = {"a": [1.0, {"b": True, "c": "msp", "d": None}]}
    changes = [lambda d: d["a"].__setitem__(0, 1.00001), lambda d: d["a"][1].pop("b"), lambda d: d.update(e=1)]
    changes += [lambda d: d["a"][1].update(b=1), lambda d: d["a"][1].update(c="margin"), lambda d: d["a"].append(2)]
    for change in changes:
        outcome = copy.deepcopy(recorded)
        change(outcome)
        assert len(list(runs.compare(recorded, outcome))) == 1
    assert not list(runs.compare(recorded, {"a": [1 + 1e-9, {"b": True, "c": "msp", "d": None}]}))


def test_sentences_and_dates_are_left_out_and_long_lists_are_summed():
    assert runs.keep({"text": "Trusted", "x": "two words", "name": "ece", "created": "2026-01-01", "n": 3}) == {
        "text": "...",
        "x": "...",
        "name": "ece",
        "n": 3,
    }
    numbers = [float(k) for k in range(50)]
    exchanged = [numbers[1], numbers[0], *numbers[2:]]
    assert runs.keep(numbers)["sum"] == runs.keep(exchanged)["sum"] == 1225
    assert runs.keep(numbers)["weighted"] != runs.keep(exchanged)["weighted"]
