"""Comparisons on a real Ray cluster of several nodes: the numbers of one machine, whatever is killed on the way."""

import contextlib
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from calibrant.base.cluster import connect
from calibrant.experiments import Contender, Local, Results, Study, compare, engine_of
from calibrant.training import checkpoints
from calibrant.training.recipe import Resources, check_recipe
from calibrant.training.run_folder import RunFolder
from tests.helpers.errors import facts
from tests.helpers.ray_nodes import node, nodes, raylet

pytest.importorskip("ray", reason="pip install 'calibrant[cluster]'")
from calibrant.experiments.ray_engine import RayEngine

# One process for all of them: a cluster takes a core.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore::ResourceWarning")]

EPOCHS = 20
RECIPE = {
    "data": {"layout": "digits"},
    "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [16]},
    "optimiser": {"rate": 0.1},
    "training": {"epochs": EPOCHS, "batch_size": 128, "checkpoint_seconds": 0.2},
}


def study(seeds):
    return Study(
        check_recipe(RECIPE, "digits"), {"ce": Contender("ce", {}), "ls": Contender("ls", {"alpha": 0.1})}, seeds
    )


def rows(found):
    return sorted(map(str, Results.load(found.folder).rows))


@pytest.fixture(scope="module")
def cluster():
    """Connected once: workers then know what they have imported from one test to the next."""
    with nodes(2) as found, connect("the tests", found.address):
        yield found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same comparison on one machine, with nothing killed."""
    return compare(study((0, 1)), tmp_path_factory.mktemp("local"), engine=Local(2, threads=1))


def ends(events):
    """What a progress was told of runs that ended."""
    return [what for what, *_ in events if what.endswith((" done", " failed", " stopped"))]


class Watcher(threading.Thread):
    """Strikes as soon as a run that it may strike has a checkpoint."""

    def __init__(self, runs, may, strike):
        super().__init__(daemon=True)
        self.runs, self.may, self.strike, self.struck = Path(runs), may, strike, None
        self.is_needed = True

    def end(self):
        """Stop looking: the comparison is over."""
        self.is_needed = False
        self.join()

    def run(self):
        while self.is_needed:
            time.sleep(0.01)
            for saved in self.runs.glob("*/last.safetensors"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    holder = int((saved.parent / ".calibrant-lock").read_text().split()[1])
                    if not (saved.parent / "result.json").exists() and self.may(holder):
                        self.strike(holder)
                        self.struck = saved.parent
                        return


def parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def complete(found, seeds):
    """Every run is there once, done, with every epoch once."""
    assert not found.failures
    with open(found.folder / "runs.csv", newline="") as file:
        states = [(line["method"], int(line["seed"]), line["state"]) for line in csv.DictReader(file)]
    assert sorted(states) == [(method, seed, "done") for method in ("ce", "ls") for seed in seeds]
    for run in (found.folder / "runs").iterdir():
        epochs = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        assert [entry["epoch"] for entry in epochs if entry["event"] == "epoch"] == list(range(1, EPOCHS + 1))


def test_a_killed_worker_is_replaced_and_the_numbers_are_those_of_one_machine(cluster, alone, tmp_path):
    events = []
    watcher = Watcher(tmp_path / "runs", lambda process: True, lambda process: os.kill(process, signal.SIGKILL))
    watcher.start()
    found = compare(
        study((0, 1)), tmp_path, engine=RayEngine(cluster.address), progress=lambda *event: events.append(event)
    )
    watcher.end()
    assert watcher.struck is not None
    complete(found, (0, 1))
    assert rows(found) == rows(alone)
    assert sorted(what.partition(": ")[2] for what in ends(events)) == [
        "ce 0 done",
        "ce 1 done",
        "ls 0 done",
        "ls 1 done",
    ]


def test_a_node_that_goes_away_takes_no_run_with_it(cluster, alone, tmp_path):
    extra = node(cluster)
    pid = raylet(extra)
    events = []
    watcher = Watcher(
        tmp_path / "runs",
        lambda process: parent(process) == pid,
        lambda process: cluster.remove_node(extra, allow_graceful=False),
    )
    watcher.start()
    found = compare(
        study((0, 1)), tmp_path, engine=RayEngine(cluster.address), progress=lambda *event: events.append(event)
    )
    watcher.end()
    assert watcher.struck is not None
    complete(found, (0, 1))
    assert rows(found) == rows(alone)
    done = [what for what in ends(events) if what.endswith(" done")]
    assert len(done) == len(set(done)) == 4


def test_an_error_of_a_run_is_recorded_and_not_tried_again(cluster, tmp_path):
    broken = check_recipe(RECIPE | {"optimiser": {"rate": 1e6, "weight_decay": 1e6}}, "broken")
    events = []
    for _ in range(2):
        found = compare(
            Study(broken, {"ce": Contender("ce", {})}, (0,)), tmp_path / "out", engine=RayEngine(cluster.address),
            progress=lambda *event: events.append(event),
        )  # fmt: skip
        assert [failure.method for failure in found.failures] == ["ce"]
        assert "the loss is" in found.failures[0].error
    assert ends(events) == ["testing: ce 0 failed"]


def test_what_no_machine_has_is_one_sentence(cluster, tmp_path):
    engine = RayEngine(cluster.address, Resources(cpus=1, gpus=3))
    with pytest.raises(ValueError, match=facts("1", "3")):
        compare(study((0,)), tmp_path, engine=engine)


def test_interrupted_runs_save_what_they_have(cluster, tmp_path):
    """Ctrl-C, here raised while the progress is reported: tasks are cancelled, and save before they end."""
    long = check_recipe(RECIPE | {"training": {"epochs": 10**6, "batch_size": 1, "checkpoint_seconds": 10**6}}, "long")

    def stop(what, done, total):
        if done * 10**6 * 1437 > 20:  # steps
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(
            Study(long, {"ce": Contender("ce", {})}, (0,)), tmp_path, engine=RayEngine(cluster.address), progress=stop
        )
    (run,) = (tmp_path / "runs").iterdir()
    assert not (run / "result.json").exists()
    assert not (run / "failed.json").exists()
    with RunFolder(run).lock():  # nobody else does any more
        progress = checkpoints.load(run / "last.safetensors")[1]
    assert progress["batch"] > 0  # in the middle of an epoch, where nothing is saved otherwise


def test_a_search_stops_what_does_not_promise(cluster, tmp_path):
    """ASHA: what is stopped has no result; what is chosen is the best of what came to the end."""
    searched = check_recipe(
        RECIPE | {"training": {"epochs": 9, "batch_size": 128}, "search": {"ls": {"alpha": [0, 0.4, 0.8]}}}, "s"
    )
    plan = Study(searched, {"ls": Contender("ls", {}), "ce": Contender("ce", {})}, (0,), ("nll",), "halving")
    engine = RayEngine(cluster.address)
    events, lock = [], threading.RLock()  # as a progress bar has one, which no pickle can hold

    def progress(*event):
        with lock:
            events.append(event)

    trials, chosen = engine.search(plan, tmp_path / "runs", None, progress)
    assert events[0][1:] == (0, 3)
    assert sorted(what.split()[-1] for what in ends(events)) == sorted(
        ["done"] * len(trials) + ["stopped"] * (3 - len(trials))
    )
    values = {}
    for trial in trials:
        result = json.loads((tmp_path / "runs" / trial.key / "result.json").read_text())
        values[result["sets"]["val"]["nll"]] = trial.settings
        assert len(result["history"]) == 9
    assert chosen == {("ls", 0, "nll"): values[min(values)], ("ce", 0, "nll"): {}}
    ended = [run for run in (tmp_path / "runs").iterdir() if (run / "result.json").exists()]
    assert len(ended) == len(trials) >= 1
    events.clear()
    assert engine.search(plan, tmp_path / "runs", None, progress) == (trials, chosen)  # from what was kept
    assert [event[1:] for event in events] == [(3, 3)]


def test_an_address_that_does_not_answer(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ValueError, match=facts(address)):
        compare(study((0,)), tmp_path, engine=RayEngine(address))
    with pytest.raises(ValueError, match=facts("host:port", "here")):
        compare(study((0,)), tmp_path, engine=RayEngine("here"))


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=facts("calibrant[cluster]")):
        engine_of("ray", check_recipe(RECIPE, "digits"))


DRIVER = """
import sys
from calibrant.base.cluster import connect
with connect("the test") as ray:
    assert ray.get(ray.remote(lambda: 7).remote()) == 7
    print("ready", flush=True)
    sys.stdin.read()
"""
LISTENING = "0A"
LOOPBACK = {"0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000"}  # IPv4, mapped into IPv6, IPv6


def family(root: int) -> set[int]:
    """A process and all its descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    members = {root}
    while more := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def listening(processes: set[int]) -> list[str]:
    """Addresses, as the kernel writes them, on which some of the processes listen."""
    inodes = set()
    for pid in processes:
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(handle).removeprefix("socket:[").rstrip("]"))
            except OSError:
                continue
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [row[1].partition(":")[0] for row in rows if row[3] == LISTENING and row[9] in inodes]


def alive(processes: set[int]) -> set[int]:
    """Those that run, zombies left out."""
    running = set()
    for pid in processes:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                running.add(pid)
        except OSError:
            continue
    return running


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets and processes are looked up in /proc")
def test_a_local_cluster_listens_on_loopback_and_ends_with_its_killed_driver():
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    members = {driver.pid}
    try:
        assert driver.stdout.readline() == b"ready\n"
        members = family(driver.pid)
        addresses = listening(members)
        assert len(addresses) > 3  # gcs_server, raylet, its agents
        assert set(addresses) <= LOOPBACK
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        end = time.monotonic() + 30
        while alive(members) and time.monotonic() < end:
            time.sleep(0.2)
        assert not alive(members)
    finally:
        for pid in alive(members):
            os.kill(pid, signal.SIGKILL)
        driver.communicate()
