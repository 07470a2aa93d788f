"""What is printed: nothing in a name or a message reaches the terminal as a command."""

import sys
import warnings

import pytest

from calibrant.cli import console

HOSTILE = "cat\x1b[2J\x07\x9b31m\u202etac\u2028\x7f\r\ud800"
SHOWN = r"cat\x1b[2J\x07\x9b31m\u202etac\u2028\x7f\x0d\ud800"


@pytest.mark.parametrize("command", ["\x1b]0;title\x07", "\x08\x08", "\x9d", "\u2066", "\u200f", "\x00", "\ufeff"])
def test_control_characters_are_printed_as_escapes(command):
    shown = console.escaped(f"a{command}b")
    assert shown[0] == "a"
    assert shown[-1] == "b"
    assert shown.isprintable()


def test_text_of_any_script_stays():
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
    monkeypatch.setattr(console, "progress_bar", lambda **options: bars.append(draw(**options)) or bars[-1])
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
    assert not terminal[0].tasks[0].completed
    assert capsys.readouterr() == ("", "")
