"""The command line: parse, call, print. One file per command; errors are one line and exit code 2."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Annotated, NoReturn

import typer

from calibrant import __version__
from calibrant.cli import apply, audit, common, compare, data, demo, export, fit, lens, methods, train

app = typer.Typer(
    name="calibrant",
    help="Classifiers whose confidence can be trusted.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"calibrant {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("apply")(apply.apply_command)
app.command("audit")(audit.audit_command)
app.command("compare")(compare.compare_command)
app.add_typer(data.app, name="data")
app.command("demo")(demo.demo)
app.command("export")(export.export_command)
app.command("fit")(fit.fit_command)
app.command("lens")(lens.lens_command)
app.command("methods")(methods.methods)
app.command("predict")(train.predict_command)
app.command("train")(train.train_command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 bad input, 130 interrupted."""
    given = sys.argv[1:] if arguments is None else arguments
    common.invocation[:] = [str(word) for word in given]
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that half-written files are removed
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names of classes and files come in any script
    try:
        code = app(args=given or ["--help"], prog_name="calibrant", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        _leave(_fail("interrupted", 130))
    except BrokenPipeError:  # the reader of our output has gone, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        # Usage errors are known by how they print themselves; their class has moved between typer versions.
        if hasattr(error, "format_message"):
            _leave(_fail(error.format_message()))
        if isinstance(error, OSError) and error.strerror and error.filename is not None:
            _leave(_fail(f"{error.filename}: {error.strerror}"))
        if isinstance(error, (ValueError, OSError)):
            _leave(_fail(str(error)))
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = 2) -> int:
    print(f"calibrant: {' '.join(message.split())}", file=sys.stderr)
    return code


def _leave(code: int) -> NoReturn:
    """End, and where several processes train together leave none of them waiting."""
    processes = sys.modules.get("calibrant.training.processes")  # no command is slower for what only training needs
    if processes is not None:
        processes.leave(code)
    sys.exit(code)
