"""A connection to a Ray cluster: one that runs already, or one of this machine alone for as long as it is needed.

A cluster that is started here listens on the loopback address only, and ends with the process that started it, also
when that is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibrant.base.extras import need

#: How often a piece of work is tried again after its process or machine was lost.
RETRIES = 5

_ANSWER_SECONDS = 5.0
_STORE_BYTES = 2**28  # what passes through Ray here is small
_LOOPBACK = "127.0.0.1"

# Waits until the process at the other end of its input is gone, and ends what has outlived it: Ray's agents wait for
# ever for a cluster that is dead. They are the descendants of the raylet, argument 1, looked up while it lives.
_UNDERTAKER = """
import os, select, sys, time

def processes():
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        yield int(entry), int(fields[1]), fields[19]  # itself, its parent, when it started

family = {}
while True:
    parents = {int(sys.argv[1])}
    for process, parent, start in sorted(processes(), key=lambda row: int(row[2])):
        if parent in parents:
            parents.add(process)
            family[process] = start
    if select.select([sys.stdin], [], [], 2.0)[0]:
        break
time.sleep(1)
for process, _, start in processes():
    if family.get(process) == start:
        try:
            os.kill(process, 9)
        except OSError:
            pass
"""


def import_ray(feature: str) -> Any:
    """Import Ray, or raise an error that says how to install it; ``feature`` is the part that needs it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    need(feature, "cluster", "ray")
    import ray

    return ray


class Board:
    """The progress of each run: an actor, defined here so that its process imports neither half."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[float, float | None]] = {}

    def write(self, key: str, done: float, total: float | None) -> None:
        """Note how far a run is."""
        self.steps[key] = done, total

    def read(self) -> dict[str, tuple[float, float | None]]:
        """How far every run is, by its key."""
        return self.steps


@contextlib.contextmanager
def connect(feature: str, address: str | None = None) -> Iterator[Any]:
    """Ray, connected to a cluster; a connection that the process has already is used and left as it is.

    Args:
        feature: the part that needs it.
        address: of a cluster, or ``"auto"`` for the one this machine belongs to; None starts one here, and ends it.
    """
    ray = import_ray(feature)
    if address is not None:
        _check_answer(address)
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    handler = signal.getsignal(signal.SIGTERM)
    undertaker = None
    if address is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        with _loopback_only():
            ray.init(
                "local", num_cpus=cores, include_dashboard=False, object_store_memory=_STORE_BYTES,
                _node_ip_address=_LOOPBACK, **quiet,
            )  # fmt: skip
        undertaker = _start_undertaker()
    else:
        try:
            ray.init(address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split()).partition(". ")[0]
            raise ValueError(
                f"no Ray cluster could be reached at {address!r}: {reason}; a cluster started with a token in "
                "~/.ray/auth_token is reached with the same token and RAY_AUTH_MODE=token"
            ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray's own handler prints a trace
    try:
        yield ray
    finally:
        ray.shutdown()
        if undertaker is not None:
            undertaker.kill()
            undertaker.communicate()


@contextlib.contextmanager
def _loopback_only() -> Iterator[None]:
    """Make Ray use the loopback address for this machine, which it would replace by one that others can reach.

    All its servers then bind to that address.
    """
    from ray._private import services

    get_address = services.get_node_ip_address
    services.get_node_ip_address = lambda *_, **__: _LOOPBACK
    try:
        yield
    finally:
        services.get_node_ip_address = get_address


def _start_undertaker() -> subprocess.Popen[bytes] | None:
    """Start a process that ends Ray's processes when this one ends, however it does; None where there is no /proc."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, fields = stat.read_text().rpartition(")")
            if name.endswith("(raylet") and fields.split()[1] == str(os.getpid()):
                command = [sys.executable, "-I", "-S", "-c", _UNDERTAKER, stat.parent.name]
                return subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )  # fmt: skip
    return None


def _check_answer(address: str) -> None:
    """Check that something answers at the address, as Ray would keep trying for minutes."""
    address = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if address == "auto":
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"the address of a Ray cluster must be auto or host:port, got {address!r}")
    try:
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"no Ray cluster answers at {address}: {error}") from None


def check_fits(ray: Any, task: str, cpus: float, gpus: float) -> None:
    """Refuse what no machine of the cluster can run; Ray would wait for such a machine without a message."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    machines = [(machine.get("CPU", 0), machine.get("GPU", 0)) for machine in resources]
    if not any(own_cpus >= cpus and own_gpus >= gpus for own_cpus, own_gpus in machines):
        available = "; ".join(sorted({f"{own_cpus:g} and {own_gpus:g}" for own_cpus, own_gpus in machines}))
        raise ValueError(
            f"{task} takes {cpus:g} CPUs and {gpus:g} GPUs, and no machine of the Ray cluster has as many: they have "
            f"{available}"
        )
