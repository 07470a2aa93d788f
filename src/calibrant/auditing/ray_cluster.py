"""A connection to a Ray cluster: one that runs already, or one of this machine alone for as long as it is needed."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

#: How often a piece of work is tried again after its process or machine was lost.
RETRIES = 5

_ANSWER_SECONDS = 5.0
_STORE_BYTES = 2**28  # what passes through Ray here is small


def imported(what: str) -> Any:
    """Ray itself, or one sentence.

    Args:
        what: Who needs it.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ValueError(f"{what} needs the package ray: pip install 'calibrant[cluster]'.") from None
    return ray


@contextlib.contextmanager
def connected(what: str, address: str | None = None) -> Iterator[Any]:
    """Ray, connected; a connection that the process has already is used and left as it is.

    Args:
        what: Who needs it.
        address: Of a cluster, or ``"auto"`` for the one this machine belongs to; None starts one here, and ends it.
    """
    ray = imported(what)
    if address is not None:
        _check_answer(address)
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    ending = signal.getsignal(signal.SIGTERM)
    if address is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        ray.init("local", num_cpus=cores, include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet)
    else:
        try:
            ray.init(address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split()).partition(". ")[0]
            raise ValueError(
                f"no Ray cluster could be reached at {address!r}: {reason}. A cluster that was started with a token in "
                "~/.ray/auth_token is reached with the same token and RAY_AUTH_MODE=token."
            ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, ending)  # Ray has its own answer, a trace
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answer(address: str) -> None:
    """Ask before Ray does, which goes on asking for minutes."""
    given = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if given == "auto":
        return
    host, colon, port = given.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"the address of a Ray cluster is auto or host:port, got {given!r}.")
    try:
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"no Ray cluster answers at {given}: {error}.") from None


def check_fits(ray: Any, what: str, cpus: float, gpus: float) -> None:
    """Refuse what no machine of the cluster could ever hold; Ray would wait for one without a word."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(one.get("CPU", 0) >= cpus and one.get("GPU", 0) >= gpus for one in machines):
        held = "; ".join(sorted({f"{one.get('CPU', 0):g} and {one.get('GPU', 0):g}" for one in machines}))
        raise ValueError(
            f"{what} takes {cpus:g} CPUs and {gpus:g} GPUs, and no machine of the Ray cluster has as many: "
            f"they have {held}."
        )
