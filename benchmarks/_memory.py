"""Peak memory of the whole process, as the system counts it: torch, NumPy and everything else alike.

Standard library only, because the peers' environment runs it too. Linux only; elsewhere the answers are None, but for
`peak_resident`.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_extra(step: Callable[[], object], *, warm: bool = True) -> int | None:
    """The most memory one call holds beyond what is held before it, in bytes, to about a megabyte.

    A first call (unless ``warm`` is False) loads what is loaded once: threads, tables, modules. What the allocator
    keeps of freed memory would serve the next call unseen, so it is given back before.
    """
    if not _STATUS.exists():
        return None
    if warm:
        step()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    try:
        _RESET.write_text("5")  # the peak starts over
    except OSError:
        return None
    before = _field("VmRSS")
    step()
    return max(0, _field("VmHWM") - before)


def peak_resident() -> int:
    """The most memory this process has held, in bytes.

    Not getrusage where there is a choice: its number includes what the parent held before the program was started.
    """
    if _STATUS.exists():
        return _field("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def check_peak_extra() -> None:
    """Hold `peak_extra` against calls whose memory is known: one and two arrays of 64 MB alive at once."""
    size = 1 << 26
    known: dict[int, Callable[[], object]] = {
        size: lambda: bytearray(b"1" * 16) * (size // 16),
        2 * size: lambda: (bytearray(b"1" * 16) * (size // 16)).upper(),
    }
    for expected, step in known.items():
        got = peak_extra(step)
        if got is not None and abs(got - expected) > 0.1 * expected:
            raise RuntimeError(f"the record of memory does not work on this system: {got} bytes, not {expected}")


def _field(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{_STATUS} has no {name}")
