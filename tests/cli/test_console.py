"""What is printed: nothing in a name or a message reaches the terminal as a command."""

import sys
import warnings

import pytest
from rich.console import Console

from calibrant.cli import console

HOSTILE = "cat\x1b[2J\x07\x9b31m\u202etac\u2028\x7f\r\ud800"
SHOWN = r"cat\x1b[2J\x07\x9b31m\u202etac\u2028\x7f\x0d\ud800"


@pytest.mark.parametrize("command", ["\x1b]0;title\x07", "\x08\x08", "\x9d", "\u2066", "\u200f", "\x00", "\ufeff"])
def test_control_characters_are_printed_as_escapes(command):
    shown = console.escaped(f"a{command}b")
    assert shown[0] == "a"
    assert shown[-1] == "b"
    assert shown.isprintable()
    assert console.escaped("Käfer 猫 кот 🐈 [bold]x[/]") == "Käfer 猫 кот 🐈 [bold]x[/]"


def test_everything_that_prints_escapes(capsys):
    console.print_line(HOSTILE)
    console.say(HOSTILE)
    console.remark(HOSTILE)
    console.print_table(HOSTILE, [HOSTILE, "[bold]n"], [[HOSTILE, "1"]])
    console.print_json({HOSTILE: HOSTILE})
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert text.replace("\n", "").isprintable()
        assert (
            SHOWN.replace("\\", "") in text.replace("\\", "").replace("u000d", "x0d").replace("u00", "x")
            or SHOWN in text
        )
    assert captured.out.count(SHOWN) == 5
    assert "[bold]n" in captured.out


def test_what_libraries_warn_of_is_one_escaped_line(capsys, monkeypatch):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    console.show_warnings()
    warnings.showwarning(UserWarning("two\nlines \x1b[2J"), UserWarning, "x.py", 1)
    assert capsys.readouterr().err == "note: two lines \\x1b[2J\n"


@pytest.fixture
def terminal(monkeypatch):
    """The bars that are drawn, on a standard error that is a terminal."""
    bars = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    draw = console.progress_bar

    def record(*columns, **options):
        bars.append(draw(*columns, **options))
        return bars[-1]

    monkeypatch.setattr(console, "progress_bar", record)
    return bars


def test_progress_is_a_bar_of_the_current_stage(terminal):
    with console.show_progress(quiet=False) as progress:
        for what, done, total in [("reading", 0, 10), ("reading", 4, 10), ("epoch 2 [x]", 4, 10), ("fitting", 1, None)]:
            progress(what, done, total)
            (task,) = terminal[0].tasks
            assert (task.description, task.completed, task.total) == (what.replace("[", r"\["), done, total)
    assert not terminal[0].live.is_started


def test_progress_is_silent_where_nobody_watches(terminal, capsys):
    with console.show_progress(quiet=True) as progress:
        progress("reading", 1, 2)
    assert not terminal
    assert capsys.readouterr() == ("", "")


def test_progress_is_a_line_per_unit_where_there_is_no_terminal(capsys):
    with console.show_progress(quiet=False, lines=True) as progress:
        for what, done in [("testing: a 10%", 0), ("testing: a 90%", 0.9), ("testing: b", 1), ("testing: b", 1.5)]:
            progress(what, done, 2)
        progress("writing", 0, None)
    assert capsys.readouterr().err == "0 of 2: testing: a 10%\n1 of 2: testing: b\nwriting\n"


def test_tables_in_a_narrow_terminal(monkeypatch, capsys):
    """Numbers are never cut or wrapped: columns go on below; words are wrapped."""
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(width=60, file=sys.stdout))
    head = ["method", *(f"metric {i}" for i in range(7))]
    rows = [["ce", *(f"12.34 ± 0.{i}{i}" for i in range(7))], ["acls:margin=6", *["1"] * 7]]
    console.print_table("Numbers", head, rows)
    out = capsys.readouterr().out
    assert all(len(line) <= 60 for line in out.splitlines())
    assert all(word in out for word in (*head, *(f"12.34 ± 0.{i}{i}" for i in range(7))))
    assert out.count("acls:margin=6") > 1
    claim = "Where no object is in sight, ALS is less confident than cross-entropy"
    console.print_table(
        "Words", ["claim", "difference", "verdict"], [[claim, "-52.30 ± 0.90 pp", "holds"]], numbers=False
    )
    out = capsys.readouterr().out
    assert all(len(line) <= 60 for line in out.splitlines())
    assert "-52.30 ± 0.90 pp" in out
    assert "holds" in out
    assert "…" not in out
