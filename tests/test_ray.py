"""A Ray that is started here: reachable from this machine alone, and gone with the process that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="pip install 'calibrant[cluster]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets and processes are looked up in /proc"),
]

DRIVER = """
import sys
from calibrant._ray import connect
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
