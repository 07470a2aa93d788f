"""Comparisons: failures, repeats, interruptions, data that changed; the files and the page that they write."""

import csv
import json
import math
import re

import numpy as np
import pytest
from PIL import Image

from calibrant.experiments import Comparison, Contender, Failure, Local, Results, Study, compare, tables, write
from calibrant.experiments.comparison import check_folder
from calibrant.experiments.comparison_page import document
from calibrant.experiments.engines import Job, perform
from calibrant.experiments.tables import average_ranks, summary, text
from calibrant.experiments.tables.verdict import judge_methods
from calibrant.report.text import DASH, escape
from calibrant.training.recipe import check_recipe
from tests.experiments.conftest import Here, Nobody, study
from tests.helpers import digit_studies
from tests.helpers.errors import facts
from tests.helpers.result_rows import SMALL, row, two_targets
from tests.training.conftest import state_of

pytestmark = pytest.mark.slow


def test_one_failure_does_not_stop_the_rest(sweep):
    _, found, events = sweep
    assert {f.method for f in found.failures} == {"broken"}
    assert all("the loss is" in f.error for f in found.failures)
    assert found.twins == [("mbls", "ce")]
    assert set(found.results.column("method")) == {"ce", "ls", "mbls"}
    ends = [what.split()[-1] for what, *_ in events if what.endswith((" done", " failed"))]
    assert sorted(ends) == ["done"] * 6 + ["failed"] * 2
    assert events[0][1:] == (0, 8)
    assert events[-1][1:] == (8, 8)
    with (found.folder / "runs.csv").open() as file:
        states = [(row["method"], row["state"]) for row in csv.DictReader(file)]
    ended = (("ce", "done"), ("ls", "done"), ("broken", "failed"), ("mbls", "done"))
    assert states == [(method, state) for method, state in ended for _ in range(2)]


def test_other_data_are_not_taken_for_these(tmp_path):
    model = {"name": "mlp", "input_size": [3, 8, 8], "hidden": [8]}
    training = {"epochs": 1, "batch_size": 4}
    given = digit_studies.recipe(data={"layout": "image-folder"}, model=model, training=training)
    for name, shade in (("one", 10), ("moved", 10), ("other", 11)):
        for split in ("train", "test"):
            for label in ("a", "b"):
                folder = tmp_path / name / split / label
                folder.mkdir(parents=True)
                for i in range(6):
                    Image.new("RGB", (8, 8), (shade * i, 0, 99 * (label == "a"))).save(folder / f"{i}.png")
    plan = Study(given, {"ce": Contender("ce", {})}, (0,))
    first = compare(plan, tmp_path / "out", data=str(tmp_path / "one"), engine=Here())
    assert not first.failures
    again = compare(plan, tmp_path / "out", data=str(tmp_path / "moved"), engine=Here())
    assert again.results == first.results
    with pytest.raises(ValueError, match=facts("moved", "other", "24")):
        compare(plan, tmp_path / "out", data=str(tmp_path / "other"), engine=Here())
    with pytest.raises(ValueError, match=facts("nowhere")):
        compare(plan, tmp_path / "out", data=str(tmp_path / "nowhere"), engine=Here())
    als = Study(given, {"als": Contender("als", {})}, (0,))
    with pytest.raises(ValueError, match=facts("adaptive", "boxes")):
        compare(als, tmp_path / "new", data=str(tmp_path / "one"), engine=Here())


def test_what_is_finished_is_in_the_table_when_a_sweep_is_interrupted(tmp_path):
    plan = digit_studies.study(["ce", "ls"], seeds=(0,))

    def stop(what, done, total):
        if what.endswith(" done"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(plan, tmp_path, engine=Local(1), progress=stop)
    assert Results.load(tmp_path).column("method") == ["ce"]


def test_what_would_fail_again_is_not_tried_again(sweep):
    plan, found, _ = sweep
    events = []
    compare(plan, found.folder, engine=Here(), retry=True, progress=lambda *event: events.append(event))
    assert events[0][1:] == (6, 8)
    ends = [what for what, *_ in events if what.endswith((" done", " failed"))]
    assert sorted(ends) == ["testing: broken 0 failed", "testing: broken 1 failed"]  # asked for, they are


def test_a_run_that_failed_before_it_began_can_be_tried_again(tmp_path):
    """Its folder holds why it failed, and nothing else."""
    late = digit_studies.recipe(data={"layout": "digits", "options": {"seed": 0}}, training={"max_steps": 1})
    job = Job.of(late, tmp_path, None, "late")
    job.fail("the process was ended by SIGKILL", lasting=False)
    assert perform(job, 1) is True
    assert job.is_done
    assert job.failure is None


def test_a_strangers_folder_among_the_runs_stays_as_it_is(compared, tmp_path):
    plan = study("ce", "focal")
    theirs = compared / "runs" / plan.final("focal", {}, 0, "").key
    theirs.mkdir()
    (theirs / "notes.txt").write_text("mine")
    before = state_of(theirs)
    with pytest.raises(ValueError, match=facts("notes.txt")):
        compare(plan, compared, engine=Nobody())
    assert state_of(theirs) == before


def test_tables_are_not_written_through_a_link(compared, tmp_path, recipe, refused):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "methods.md").write_text("mine")
    (compared / "tables").symlink_to(theirs)
    words = ["--losses", "ce,ls", "--seeds", "1", "-q"]
    assert "tables" in refused("compare", recipe, "-o", compared, *words)
    assert [path.name for path in theirs.iterdir()] == ["methods.md"]


def test_progress_begins_when_the_folder_is_ours(compared):
    heard = []
    compare(study(), compared, engine=Nobody(), progress=lambda *event: heard.append((event, check_folder(compared))))
    assert [(event[1:], ours) for event, ours in heard] == [((2, 2), True)]


def test_methods_without_numbers_have_a_row_of_dashes():
    table = summary(SMALL, ["ece"], ranks=True, missing=[("mbls", ""), ("lr", "nll")])
    assert text(table)[-2:] == [["MbLS", "", DASH, DASH], ["LR", "nll", DASH, DASH]]
    assert [line.cells[0].runs for line in table.rows[-2:]] == [0, 0]
    assert "MbLS" in table.note
    without = summary(SMALL, ["ece"], ranks=True)
    assert table.rows[:3] == without.rows
    assert tables.csv(table).splitlines()[-1] == "lr,nll,,,0,,0"
    ranks = average_ranks(SMALL, ["ece"], missing=["mbls"])
    assert text(ranks)[-1] == ["MbLS", DASH]
    assert [line.cells[0].mean for line in ranks.rows[:3]] == [3, 2, 1]
    assert DASH not in tables.latex(table)


def test_ranks_of_one_target_are_those_of_the_whole_table():
    whole = average_ranks(two_targets(), ["ece"])
    for k, target in enumerate(("ece", "accuracy", "")):
        part = average_ranks(two_targets(), ["ece"], target=target)
        assert [c.head for c in part.columns] == ["ECE ↓"]
        assert [line.cells[0] for line in part.rows] == [line.cells[k] for line in whole.rows]
    assert [line.method for line in whole.rows] == ["ce", "ls", "lr", "mbls"]
    with pytest.raises(ValueError, match=facts("nll", "ece, accuracy")):
        average_ranks(two_targets(), ["ece"], target="nll")


RECIPE = check_recipe(
    {
        "title": "Made up",
        "data": {"layout": "scenes", "also": {"covered": "context-only", "other": {"options": {"shift": "texture"}}}},
        "model": {"name": "small_cnn"},
        "training": {"epochs": 1, "batch_size": 8},
        "search": {"ls": {"alpha": [0.1, 0.2]}, "mbls": {"margin": [3, 6], "strength": [0.05, 0.1]}},
    },
    "made up",
)


def made(folder, methods=("ce", "ls", "mbls", "focal"), tune=("ece", "accuracy"), seeds=(0, 1, 2), failed=("focal",)):
    """A comparison as if it had been run: ls has the same settings for both targets, mbls others."""
    chosen = {
        "ls": [{"alpha": 0.1}, {"alpha": 0.1}],
        "mbls": [{"margin": 3, "strength": 0.05}, {"margin": 6, "strength": 0.1}],
    }
    study = Study(RECIPE, {name: Contender(name, {}) for name in methods}, seeds, tune)
    rng, rows, planned = np.random.default_rng(1), {}, []
    for name in methods:
        settings = chosen.get(name, [{}, {}])
        trials = [study.trial(name, 0, s) for s in study.candidates(name)] if name in chosen and tune else []
        finals = [
            study.final(name, s, seed, t) for s, t in zip(settings, tune or ("",), strict=False) for seed in seeds
        ]
        planned += [*trials, *finals]
        for run in [*trials, *finals] if name not in failed else ():
            labels = (run.method, run.seed)
            about = {"run": run.key, "tuned_for": run.tuned_for, "stage": run.stage, "settings": run.settings}
            if (run.key, "ece") not in rows:
                _predicted(folder / "runs" / run.key, rng)
                for metric in ("accuracy", "mean_confidence", "nll", "ece", "aece", "aurc"):
                    rows[run.key, metric] = float(rng.uniform(0.1, 0.9))
            sets = ("val",) if run.stage == "search" else ("val", "test", "covered", "other")
            for metric in ("accuracy", "mean_confidence", "nll", "ece", "aece", "aurc"):
                for where in sets:
                    rows[run.key, metric, where, run.tuned_for] = row(
                        *labels, metric, rows[run.key, metric], set=where, **about
                    )
    failures = tuple(Failure(r.key, r.method, r.seed, "it broke") for r in planned if r.method in failed)
    results = Results(value for value in rows.values() if not isinstance(value, float))
    return Comparison(study, folder, tuple(planned), results, failures)


def _predicted(place, rng):
    place.mkdir(parents=True)
    np.savez(place / "test.npz", logits=rng.normal(0, 2, (40, 3)), labels=rng.integers(0, 3, 40))
    history = [{"epoch": epoch, "step": 3 * epoch, "val_accuracy": 0.5, "val_ece": 0.1} for epoch in (1, 2)]
    (place / "result.json").write_text(json.dumps({"sets": {"test": {}}, "steps": 6, "history": history}))


def test_what_is_written(tmp_path):
    comparison = made(tmp_path)
    folder = tmp_path / "tables"
    folder.mkdir()
    ours = [f"{name}.{suffix}" for name in ("set-old", "ranks-nll") for suffix in ("md", "tex", "csv", "html")]
    theirs = ["set-mine.md", "notes.md", "methods.txt", "expected.pdf"]
    for name in [*ours, *theirs, "expected.tex"]:
        (folder / name).write_text("x")
    (folder / "expected.md").mkdir()
    found = write(comparison, reference="ce", expected=True)
    assert list(found) == [
        "methods", "confidence", "repairs", "set-covered", "set-other", "ranks", "ranks-ece", "ranks-accuracy",
        "paired",
    ]  # fmt: skip
    written = {f"{name}.{suffix}" for name in found for suffix in ("md", "tex", "csv", "html")}
    assert {path.name for path in folder.iterdir()} == written | set(theirs) | {"expected.md"}
    for name in written:
        content = (folder / name).read_text(encoding="utf-8")
        assert content.endswith("\n")
        assert not content.endswith("\n\n")
    assert [(line.method, line.tuned_for) for line in found["methods"].rows] == [
        ("ce", ""), ("ls", "ece and accuracy"), ("mbls", "ece"), ("mbls", "accuracy"), ("focal", ""),
    ]  # fmt: skip
    assert all("FL" in table.note for name, table in found.items() if name != "paired")
    page = re.sub("</?abbr[^>]*>", "", (tmp_path / "index.html").read_text(encoding="utf-8"))
    verdict = judge_methods(comparison.results, "ce")
    words = escape(verdict.text).replace("tuned for ece", "tuned for ECE")  # as every name of a metric on a page
    assert page.index(escape(verdict.headline)) < page.index(words)
    covered = found["set-covered"]
    assert [column.better for column in covered.columns] == ["none", "low", "none", "none"]
    assert [column.better for column in found["set-other"].columns] == ["high", "none", "low", "low"]
    assert not any(line.cells[0].best for line in covered.rows)
    assert sum(line.cells[1].best for line in covered.rows) == 1


@pytest.mark.parametrize("reference", ["focal", "ls", "ls, tuned for ece", None])
def test_any_reference_leaves_tables_and_a_page(tmp_path, reference):
    found = write(made(tmp_path), reference=reference)
    assert ("paired" in found) == (reference not in ("focal", None))
    assert (tmp_path / "index.html").exists()


def test_the_page_has_every_run_once_and_the_tables_numbers(tmp_path):
    comparison = made(tmp_path)
    found = write(comparison)
    page = document(comparison, found)
    names = ["CE", "LS, tuned for ece and accuracy", "MbLS, tuned for ece", "MbLS, tuned for accuracy"]
    for key in ("reliability", "curves", "scatter"):
        assert [part["name"] for part in page[key]] == names
    ece = [column.metric for column in found["methods"].columns].index("ece")
    for part, line in zip(page["reliability"], found["methods"].rows, strict=False):
        assert part["ece"] == line.cells[ece].mean
        assert sum(part["bins"]["count"]) == 3 * 40
    assert [(part["name"], part["parameter"], part["metric"]) for part in page["ablation"]] == [
        ("LS", "alpha", "val_ece"), ("MbLS", "margin", "val_ece"), ("MbLS", "strength", "val_ece"),
    ]  # fmt: skip
    searched = comparison.results.where(stage="search", method="mbls", set="val", metric="ece")
    best = min(searched, key=lambda r: r.value)
    assert any(math.isclose(p[1], best.value) for p in page["ablation"][1]["points"])
    assert {p[3] for part in page["ablation"] for p in part["points"]} == {1}
    assert [number for number in ("4", "3", "18") if number not in page["lead"][0]] == []
    alone = made(tmp_path / "alone", ("ce",), (), (4,), ())
    assert list(write(alone, reference="ce")) == [
        "methods", "confidence", "repairs", "set-covered", "set-other", "ranks",
    ]  # fmt: skip
