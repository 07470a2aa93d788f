"""Processes of their own for tests, forked from one that has imported what a run needs and has done nothing else.

An import of torch costs seconds of a core. Where a fresh interpreter is what is tested, subprocess is the right way.
"""

import importlib
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass

from calibrant.experiments import engines

_PATIENCE = 120.0


def start(target, *arguments):
    """Call a function in a process of its own: a ``multiprocessing.Process``, started."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(engines._PRELOADED)  # the engine's own: one such process serves both
    process = context.Process(target=_call, args=(target, arguments))
    process.start()
    return process


def finish(process):
    """The exit code of a process that ends in time, negative if a signal ended it."""
    process.join(_PATIENCE)
    if process.is_alive():
        process.kill()
        raise TimeoutError(f"process {process.pid} did not end within {_PATIENCE} seconds")
    return process.exitcode


def _call(target, arguments):
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    target(*arguments)


@dataclass
class Output:
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


class Command:
    """``calibrant WORDS...`` as typed in a folder; ``stderr`` can be read while it runs.

    Args:
        words: of the command.
        folder: it is typed in.
        new_session: whether it leads a group of processes, as in a terminal.
        variables: of the environment, besides those of this process.
    """

    def __init__(self, *words, folder, new_session=False, variables=()):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        self._stdout = tempfile.NamedTemporaryFile("r", encoding="utf-8")  # noqa: SIM115, closed in communicate
        self._process = start(
            _command,
            [str(word) for word in words],
            str(folder),
            new_session,
            dict(variables),
            self._stdout.name,
            sender,
        )
        sender.close()
        self.stderr = os.fdopen(os.dup(receiver.fileno()), encoding="utf-8")
        receiver.close()
        self.pid = self._process.pid

    def communicate(self):
        """Wait for its end."""
        with self.stderr, self._stdout:
            errors = self.stderr.read()
            return Output(finish(self._process), self._stdout.read(), errors)


def run_command(*words, folder, **settings):
    """Run a command to its end."""
    return Command(*words, folder=folder, **settings).communicate()


def run_ranks(*words, folder, count=2):
    """Run a command in several processes that are there already, as ``torchrun`` starts them: their outputs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "NODE_RANK": "0"}
    commands = [
        Command(*words, "--devices", count, folder=folder, variables=shared | {"LOCAL_RANK": str(rank)})
        for rank in range(count)
    ]
    return [command.communicate() for command in commands]


def _command(words, folder, new_session, variables, stdout, stderr):
    if new_session:
        os.setsid()
    os.chdir(folder)
    os.environ.update(variables)
    with open(stdout, "wb") as file:
        os.dup2(file.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    stderr.close()
    sys.stdout, sys.stderr = (open(number, "w", 1, "utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    sys.argv = ["calibrant", *words]
    sys.modules["__main__"] = importlib.import_module("calibrant.__main__")  # what the others of a run are started from
    sys.modules["__main__"].main()
