"""Comparisons: plans without running them, runs in processes of their own, numbers that others can compute again."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.metrics import accuracy_score

from calibrant import Predictions
from calibrant.cli import main
from calibrant.experiments import Contender, Local, Results, Study, compare
from calibrant.experiments.evaluation import NUMBERS, numbers
from calibrant.experiments.job import FAILED, Job, Stage, perform
from calibrant.experiments.spaces import changes, draw, grid, methods, space
from calibrant.experiments.study import search, shortened
from calibrant.losses import describe
from calibrant.metrics import aurc
from calibrant.training.datasets import load_sets
from calibrant.training.recipe import check_recipe
from calibrant.training.run_folder import RunFolder

BROKEN = "ce:optimiser.rate=1e6:optimiser.weight_decay=1e6"  # weights are infinite after a few steps
PLAIN = {
    "title": "digits",
    "data": {"layout": "digits"},
    "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [16]},
    "optimiser": {"rate": 0.1},
    "schedule": {"name": "multistep", "milestones": [6], "warmup": 0.9},
    "training": {"epochs": 9, "batch_size": 128},
}


def recipe(**changed):
    return check_recipe(PLAIN | changed, "digits")


def study(labels, **settings):
    given = settings.pop("recipe", None) or recipe(training={"epochs": 1, "batch_size": 128})
    named = {label: Contender(label.partition(":")[0], {}) for label in labels}
    return Study(given, named, settings.pop("seeds", (0, 1)), **settings)


def walked(plan, judge):
    """The stages of a study, each judged by a function of the run, and all of its runs."""
    stages = []

    def execute(runs):
        stages.append(list(runs))
        return {run.key: judge(run) for run in runs if judge(run) is not None}

    trials, choice = search(plan, execute)
    stages.append(plan.finals(choice))
    return stages, [*trials, *stages[-1]]


# --- spaces and plans -------------------------------------------------------------------------------------------------


def test_spaces_are_those_of_the_papers():
    assert describe("lr").search["alpha"] == (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4)
    assert describe("ecp").search["strength"] == (0.1, 0.3, 0.5, 1, 2, 4, 8)
    assert describe("focal").search["gamma"] == (0.1, 0.2, 0.5, 1, 2, 3.5, 5)
    assert len(grid(describe("acls").search)) == 2 * 3 * 3
    for method in methods():
        for settings in grid(space(method, recipe())):
            changes(method, settings, recipe())


def test_a_method_changes_nothing_but_itself():
    given = recipe(loss={"name": "mbls", "margin": 4.0, "ignore_index": 9}, targets={"name": "adaptive"})
    assert changes("mbls", {"strength": 0.2}, given)["loss"] == {
        "name": "mbls", "margin": 4.0, "ignore_index": 9, "strength": 0.2,
    }  # fmt: skip
    assert changes("ls", {}, given) == {"targets.name": "hard", "loss": {"name": "ls", "ignore_index": 9}}
    assert changes("als+context", {}, given)["data.context_rate"] == 0.15
    with pytest.raises(ValueError, match="method 'ls' has no setting 'margin'"):
        changes("ls", {"margin": 6}, given)
    with pytest.raises(ValueError, match="unknown method 'lss'"):
        changes("lss", {}, given)
    assert {"als", "ce", "lr", "acls"} < set(methods())


def test_random_combinations_are_some_of_the_grid():
    some = draw(describe("acls").search, 5, seed=0)
    assert len(some) == 5
    assert all(one in grid(describe("acls").search) for one in some)
    assert some == draw(describe("acls").search, 5, seed=0) != draw(describe("acls").search, 5, seed=1)
    assert draw(describe("acls").search, 100, seed=0) == grid(describe("acls").search)


def test_without_tuning_every_method_runs_once_per_seed():
    (stage,), every = walked(study(["ce", "ls", "als"]), lambda run: {})
    assert [(run.method, run.seed, run.stage) for run in stage] == [
        (method, seed, "final") for method in ("ce", "ls", "als") for seed in (0, 1)
    ]
    assert stage == every
    assert len({run.key for run in stage}) == 6


def test_the_protocol_of_label_relaxation():
    """Searched on a sixth of the training data, per target; trained again on all of it."""
    plan = study(["ce", "lr"], tune=("ece", "accuracy"))

    def judge(run):
        alpha = run.settings.get("alpha", 0)
        return {"ece": abs(alpha - 0.2), "accuracy": 1 - alpha}

    (search, final), every = walked(plan, judge)
    assert {run.method for run in search} == {"lr"}  # nothing to search for ce
    assert [run.settings["alpha"] for run in search] == list(describe("lr").search["alpha"])
    assert all(run.recipe.data.hold_out.fraction == pytest.approx(1 / 6) for run in search)
    assert all(run.recipe.data.hold_out is None for run in final)
    chosen = {(run.method, run.tuned_for): run.settings for run in final}
    assert chosen["lr", "ece"] == {"alpha": 0.2}
    assert chosen["lr", "accuracy"] == {"alpha": 0.01}
    assert chosen["ce", "ece"] == chosen["ce", "accuracy"] == {}
    assert len([run for run in final if run.method == "ce"]) == 4  # two seeds for two targets,
    assert len({run.key for run in final if run.method == "ce"}) == 2  # and two runs
    assert len(every) == len(search) + len(final)


def test_resampled_splits_have_a_search_each():
    plan = study(["lr"], tune=("nll",), recipe=recipe(data={"layout": "digits", "resample": True}))
    (search, final), _ = walked(plan, lambda run: {"nll": abs(run.settings["alpha"] - (0.1, 0.4)[run.seed])})
    assert {run.seed for run in search} == {0, 1}
    assert all(run.recipe.data.hold_out.seed == run.seed == run.recipe.seed for run in search)
    assert {run.seed: run.settings["alpha"] for run in final} == {0: 0.1, 1: 0.4}


def test_failed_candidates_are_passed_over():
    plan = study(["lr", "focal"], tune=("ece",))
    (_, final), _ = walked(
        plan, lambda run: {"ece": run.settings["alpha"]} if run.settings.get("alpha", 0) > 0.06 else None
    )
    assert {run.method for run in final} == {"lr"}  # every focal candidate failed
    assert {run.settings["alpha"] for run in final} == {0.1}


def test_successive_halving():
    plan = study(["acls"], tune=("ece",), search="halving", recipe=recipe())
    stages, _ = walked(plan, lambda run: {"ece": run.settings["lambda1"] + run.settings["lambda2"]})
    assert [len(stage) for stage in stages] == [18, 6, 2, 2]
    assert [stage[0].stage for stage in stages] == ["short", "short", "search", "final"]
    assert [stage[0].recipe.training.epochs for stage in stages] == [1, 3, 9, 9]
    assert [stage[0].recipe.schedule.milestones for stage in stages[:2]] == [(6 / 9,), (2,)]
    assert {(run.settings["lambda1"], run.settings["lambda2"]) for run in stages[-1]} == {(0.05, 0.005)}


def test_a_shorter_run_keeps_the_shape_of_its_schedule():
    whole, part = recipe(), shortened(recipe(), 1 / 3)
    for done in (0.05, 0.4, 0.7, 0.99):
        assert part.schedule.factor(done * 3, 3) == pytest.approx(whole.schedule.factor(done * 9, 9))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tune": ("f1",)}, "tuned for one of accuracy, ece, nll, aurc, got 'f1'"),
        ({"search": "random", "tune": ("ece",)}, "takes a number of trials"),
        ({"seeds": ()}, "at least one method and one seed"),
        ({"seeds": (0, 0)}, "each given once"),
        ({"seeds": (-1, 2)}, "whole numbers from 0 on"),
        ({"tune": ("ece", "ece")}, "got 'ece' twice"),
        ({"tune": ("ece",), "trials": 3}, "a grid is searched whole"),
        ({"search": "halving"}, "takes a metric to tune for"),
        ({"recipe": recipe(search={"foo": {"alpha": [0.1]}})}, "unknown method 'foo'"),
        ({"recipe": recipe(search={"ls": {"alpha": [0.1, 0.1]}})}, "the same value of 'alpha' twice"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_mistakes_are_found_before_anything_runs(settings, message):
    with pytest.raises(ValueError, match=message):
        study(["ce"], **settings)


def test_one_method_under_two_names_is_refused():
    named = {"ls:alpha=0.05": Contender("ls", {"alpha": 0.05}), "ls": Contender("ls", {})}
    with pytest.raises(ValueError, match=r"'ls:alpha=0\.05' and 'ls' are the same method"):
        Study(recipe(), named, (0,))


def test_a_candidate_without_a_number_is_never_chosen():
    values = dict(zip(describe("ls").search["alpha"], (0.3, float("nan"), 0.1, 0.2, 0.4, 0.5, 0.6), strict=True))
    plan = study(["ls"], tune=("ece",), seeds=(0,), recipe=recipe())
    _, every = walked(plan, lambda run: {"ece": values[run.settings["alpha"]]})
    assert every[-1].stage == "final"
    assert every[-1].settings == {"alpha": 0.05}  # 0.1, the smallest


def test_what_a_search_looked_at_is_no_test_data():
    """The hold-out of the test split, searched with the first seed alone: the tests of all seeds leave it out."""
    given = recipe(data={"layout": "digits", "hold_out": {"fraction": 0.3, "of": "test"}})
    plan = study(["ls"], tune=("ece",), seeds=(0, 1, 2), recipe=given)
    looked_at = set(load_sets(plan.trial("ls", 0, {"alpha": 0.1}).recipe).val.ids)
    assert looked_at
    for seed in (0, 1, 2):
        assert not looked_at & set(load_sets(plan.final("ls", {"alpha": 0.1}, seed, "ece").recipe).test.ids)


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two methods and two seeds, and one that fails; each once."""
    folder = tmp_path_factory.mktemp("compared")
    plan = study(["ce", "ls"], recipe=recipe(training={"epochs": 1, "batch_size": 128}))
    broken = Contender("ce", {"optimiser.rate": 1e6, "optimiser.weight_decay": 1e6})
    plan = Study(plan.recipe, {**plan.methods, "broken": broken}, (0, 1))
    events = []
    found = compare(plan, folder, engine=Local(2), progress=lambda *event: events.append(event))
    return plan, found, events


def test_one_failure_does_not_stop_the_rest(compared):
    _, found, events = compared
    assert {f.method for f in found.failures} == {"broken"}
    assert all("the loss is" in f.error for f in found.failures)
    assert set(found.results.column("method")) == {"ce", "ls"}
    ends = [what.split()[-1] for what, *_ in events if what.endswith((" done", " failed"))]
    assert sorted(ends) == ["done"] * 4 + ["failed"] * 2
    assert events[0] == ("testing: 6 runs", 0, 6)
    assert events[-1][1:] == (6, 6)
    with (found.folder / "runs.csv").open() as file:
        states = [(row["method"], row["state"]) for row in csv.DictReader(file)]
    assert states == [(m, s) for m, s in (("ce", "done"), ("ls", "done"), ("broken", "failed")) for _ in range(2)]


def test_a_method_that_never_acts_is_named(tmp_path):
    """MbLS with a margin that no logits reach is cross-entropy."""
    named = {"ce": Contender("ce", {}), "ls": Contender("ls", {}), "mbls": Contender("mbls", {"margin": 1e6})}
    found = compare(Study(study(["ce"]).recipe, named, (0,)), tmp_path, engine=Local(2))
    assert found.twins == [("mbls", "ce")]


def test_running_it_again_computes_nothing(compared):
    plan, found, _ = compared
    events = []
    again = compare(plan, found.folder, engine=Local(2), progress=lambda *event: events.append(event))
    assert events == [("testing: 6 runs, 6 of them on disk", 6, 6)]
    assert again.results == found.results == Results.load(found.folder)


def test_numbers_are_those_of_the_predictions(compared):
    """By other means: scikit-learn and PyTorch's own functions, folds by hand."""
    _, found, _ = compared
    run = found.finals[0]
    place = found.run_folder(run)
    data = Predictions.open(place / "test.npz")
    logits, labels = torch.tensor(data.logits).double(), torch.tensor(data.labels)

    def value(metric, posthoc="none"):
        mine = [n for n in numbers(place.path) if (n.set, n.posthoc, n.metric) == ("test", posthoc, metric)]
        assert len(mine) == 1
        return mine[0].value

    assert value("accuracy") == pytest.approx(accuracy_score(data.labels, data.logits.argmax(1)))
    assert value("nll") == pytest.approx(float(F.cross_entropy(logits, labels)), abs=1e-6)
    assert value("aurc") == pytest.approx(
        aurc(logits.softmax(1).amax(1).numpy(), (logits.argmax(1) == labels).numpy()), abs=2e-3
    )
    fold = np.arange(len(labels)) % 5
    losses = torch.empty(len(labels), dtype=torch.float64)
    for k in range(5):  # the temperature of each fold is fitted on the others
        rest, held = torch.from_numpy(fold != k), torch.from_numpy(fold == k)
        grid_ = torch.linspace(0.2, 5.0, 2000, dtype=torch.float64)
        best = min(grid_, key=lambda t: float(F.cross_entropy(logits[rest] / t, labels[rest])))
        losses[held] = F.cross_entropy(logits[held] / best, labels[held], reduction="none")
    assert value("nll", "temperature") == pytest.approx(float(losses.mean()), abs=1e-4)
    assert value("accuracy", "temperature") == value("accuracy")


def test_threads_do_not_depend_on_what_is_left(tmp_path, monkeypatch):
    """A sweep that goes on with its last run has as many threads for it as it had for the others."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    seen = []
    monkeypatch.setattr(Local, "_start", lambda self, context, job, threads: seen.append(threads))
    for number in (1, 3):
        Local(2).run([Job("k", {}, str(tmp_path), None, "")] * number, Stage("testing", number, number))
    assert seen == [2] * 4


def test_a_run_that_another_command_does_is_waited_for(tmp_path):
    short = recipe(training={"max_steps": 1})
    job = Job.of(short, tmp_path, None, "short")
    waited = []
    with contextlib.ExitStack() as held:
        held.enter_context(RunFolder(job.folder).lock())

        def report(what, step, steps):
            waited.append((step, steps))
            if len(waited) == 3:
                held.close()

        assert perform(job, 1, report) is True
    assert waited[:3] == [(0, None)] * 3
    assert job.is_done


def test_other_data_are_not_taken_for_these(tmp_path):
    given = recipe(data={"layout": "image-folder"}, model={"name": "mlp", "input_size": [3, 8, 8], "hidden": [8]},
                   training={"epochs": 1, "batch_size": 4})  # fmt: skip
    for name, shade in (("one", 10), ("moved", 10), ("other", 11)):
        for split in ("train", "test"):
            for label in ("a", "b"):
                folder = tmp_path / name / split / label
                folder.mkdir(parents=True)
                for i in range(6):
                    Image.new("RGB", (8, 8), (shade * i, 0, 99 * (label == "a"))).save(folder / f"{i}.png")
    plan = Study(given, {"ce": Contender("ce", {})}, (0,))
    first = compare(plan, tmp_path / "out", data=str(tmp_path / "one"), engine=Local(1))
    assert not first.failures
    again = compare(plan, tmp_path / "out", data=str(tmp_path / "moved"), engine=Local(1))
    assert again.results == first.results
    with pytest.raises(ValueError, match=r"moved \(24 samples\), and those of .*other \(24 samples\) are others"):
        compare(plan, tmp_path / "out", data=str(tmp_path / "other"), engine=Local(1))
    with pytest.raises(ValueError, match="nowhere"):
        compare(plan, tmp_path / "out", data=str(tmp_path / "nowhere"), engine=Local(1))
    als = Study(given, {"als": Contender("als", {})}, (0,))
    with pytest.raises(ValueError, match="adaptive targets are for data of images with one class each and boxes"):
        compare(als, tmp_path / "new", data=str(tmp_path / "one"), engine=Local(1))


def test_what_is_finished_is_in_the_table_when_a_sweep_is_interrupted(tmp_path):
    plan = study(["ce", "ls"], seeds=(0,))

    def stop(what, done, total):
        if what.endswith(" done"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(plan, tmp_path, engine=Local(1), progress=stop)
    assert Results.load(tmp_path).column("method") == ["ce"]


def test_a_killed_run_is_recorded_and_done_on_the_next_try(tmp_path):
    plan = study(["ce"], seeds=(0,), recipe=recipe(training={"epochs": 30, "batch_size": 32}))

    def kill(what, done, total):
        for lock in tmp_path.glob("runs/*/.calibrant-lock") if what.endswith("%") and done else ():
            os.kill(int(lock.read_text().split()[1]), signal.SIGKILL)

    found = compare(plan, tmp_path, engine=Local(1), progress=kill)
    assert [f.error for f in found.failures] == ["the process was ended by SIGKILL"]
    (job,) = (Job.of(run.recipe, tmp_path / "runs", None, "") for run in found.planned)
    assert job.failure["lasting"] is False
    again = compare(plan, tmp_path, engine=Local(1))
    assert not again.failures
    assert not (tmp_path / "runs" / job.key / FAILED).exists()
    assert (tmp_path / "runs" / job.key / NUMBERS).exists()


def test_what_would_fail_again_is_not_tried_again(compared):
    plan, found, _ = compared
    events = []
    compare(plan, found.folder, engine=Local(2), retry=True, progress=lambda *event: events.append(event))
    assert events[0][0] == "testing: 6 runs, 4 of them on disk"
    ends = [what for what, *_ in events if what.endswith((" done", " failed"))]
    assert sorted(ends) == ["testing: broken 0 failed", "testing: broken 1 failed"]  # asked for, they are


def test_errors_of_one_process_are_recorded(tmp_path):
    broken = recipe(data={"layout": "image-folder", "path": str(tmp_path / "nowhere")})
    job = Job.of(broken, tmp_path, None, "nowhere")
    assert perform(job, 1) is False
    assert "nowhere" in job.failure["error"]
    assert not job.failure["lasting"]  # nothing had begun: the folder may be put right


def test_a_run_that_failed_before_it_began_can_be_tried_again(tmp_path):
    """Its folder holds why it failed, and nothing else."""
    late = recipe(data={"layout": "digits", "options": {"seed": 0}}, training={"max_steps": 1})
    job = Job.of(late, tmp_path, None, "late")
    job.fail("the process was ended by SIGKILL", lasting=False)
    assert perform(job, 1) is True
    assert job.is_done
    assert job.failure is None


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    file = tmp_path / "digits.toml"
    file.write_text(
        'title = "Digits"\n[data]\nlayout = "digits"\nhold_out = {count = 200}\n[model]\nname = "mlp"\n'
        "input_size = [3, 8, 8]\nhidden = [16]\n[optimiser]\nrate = 0.1\n[training]\nepochs = 1\nbatch_size = 128\n"
        "[search.ls]\nalpha = [0.05, 0.3]\n[[expected]]\nmethod = 'ce'\nvalues = {accuracy = 0.9}\n"
    )
    return file


def test_tuned_tables_and_a_page(written, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(written), "--losses", "ce,ls", "--seeds", "2", "--tune", "ece", "--tune", "accuracy",
              "-o", str(tmp_path / "out"), "--expected"])  # fmt: skip
    assert stop.value.code == 0
    out, err = capsys.readouterr()
    assert "On the test data" in out
    assert "Tuned for" in out
    assert "searching, up to 8 runs to follow: 2 runs" in err
    folder = tmp_path / "out"
    for name in ("methods", "repairs", "ranks", "expected"):
        for suffix in ("md", "tex", "csv", "html"):
            assert (folder / "tables" / f"{name}.{suffix}").stat().st_size > 50
    page = (folder / "index.html").read_text()
    assert "Digits" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    results = Results.load(folder)
    assert results.where(stage="search").column("set") == ["val", "test"]
    assert json.loads((folder / "study.json").read_text())["tune"] == ["ece", "accuracy"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--losses", "lss"], "unknown method 'lss'"),
        (["--losses", "ls:margin=3"], "has no setting 'margin'"),
        (["--tune", "f1"], "tuned for one of"),
        (["--seeds", "many"], "--seeds takes a number"),
        (["--search", "luck"], "--search takes grid"),
        (["--engine", "slurm"], "unknown engine 'slurm'"),
        (["--losses", "ce,ce"], "loss 'ce' is given twice"),
        (["--losses", "ce,ls", "--reference", "nosuch"], "nosuch"),
        (["--set", "expected=[]", "--expected"], "no numbers of a paper"),
    ],
    ids=lambda value: str(value),
)
def test_mistakes_in_the_command_are_one_sentence(words, message, written, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(written), "-o", str(tmp_path / "out"), *words])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out" / "results.csv").exists()


def test_a_failed_run_and_a_failed_reference_leave_tables(written, tmp_path, capsys):
    """The exit code tells that something is missing, and a row does."""
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(written), "--losses", f"{BROKEN},ls", "--seeds", "2", "-o",
              str(tmp_path / "out"), "--reference", BROKEN])  # fmt: skip
    assert stop.value.code == 1
    out, err = capsys.readouterr()
    assert "2 runs failed; --retry-failed tries again" in err
    assert (tmp_path / "out" / "index.html").exists()
    assert BROKEN.replace("_", "\\_") in (tmp_path / "out" / "tables" / "methods.md").read_text()
    assert "ls" in out


def test_a_sweep_that_is_killed_ends_as_one_that_is_not(written, tmp_path):
    """Killed with its runs in the middle; run again, it has the same numbers."""
    words = [sys.executable, "-m", "calibrant", "compare", str(written), "--losses", "ce,ls", "--seeds", "2",
             "--set", "training.epochs=6", "-q", "-o"]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*words, str(tmp_path / "cut")], env=environment, start_new_session=True)
    time.sleep(7.0)
    process.kill()
    process.wait()
    subprocess.run([*words, str(tmp_path / "cut")], check=True, env=environment)
    subprocess.run([*words, str(tmp_path / "whole")], check=True, env=environment)
    cut, whole = (Results.load(tmp_path / name) for name in ("cut", "whole"))
    assert len(whole.column("run")) == 4
    assert cut == whole
