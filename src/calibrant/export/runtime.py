"""onnxruntime on the CPU, in bounded time and memory: a stranger's model may loop for ever, or ask for all there is."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from calibrant._arrays import threads
from calibrant.export.model_file import brief

if TYPE_CHECKING:
    from onnx import ModelProto

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
Runner = Callable[[Feeds], list[Array]]

LONGEST = 300.0  # seconds that a model may take for a batch of the check


def runner(model: ModelProto, what: str) -> Runner:
    """A model in onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads()
    if _memory_is_limited():
        options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints some of its errors, before it tries again
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
    except Exception as error:
        raise ValueError(f"onnxruntime cannot load {what} ({brief(error)})") from None

    def run(feeds: Feeds) -> list[Array]:
        settings = onnxruntime.RunOptions()
        stop = threading.Timer(LONGEST, functools.partial(setattr, settings, "terminate", True))
        stop.daemon = True
        stop.start()
        try:
            return list(session.run(None, feeds, settings))
        except Exception as error:
            if settings.terminate:
                raise ValueError(f"onnxruntime cannot run {what}: a batch takes over {LONGEST:g} seconds") from None
            raise ValueError(f"onnxruntime cannot run {what} ({_reason(error)})") from None
        finally:
            stop.cancel()

    return run


def most_memory() -> int:
    """Bytes that a model may take: half of what the machine has."""
    return max(2**30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


@functools.cache
def _memory_is_limited() -> bool:
    """Limit what onnxruntime takes in this process, once; False where it cannot be, or somebody else has done so."""
    import onnxruntime

    try:
        where = onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        )
        onnxruntime.create_and_register_allocator(where, onnxruntime.OrtArenaCfg({"max_mem": most_memory()}))
    except Exception:  # onnxruntime has its own classes
        return False
    return True


def _reason(error: Exception) -> str:
    text = str(error)
    if "BFCArena" in text or "llocate memory" in text or isinstance(error, MemoryError):
        return f"it needs more memory than the {most_memory() / 2**30:.1f} GB it may take"
    return brief(error)
