"""Outcomes of a check for continuous integration: JUnit's XML, and annotations of GitHub's workflows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from calibrant.base.files import written_aside

#: How GitHub shows an outcome beside the log.
_ANNOTATIONS = {"fail": "error", "unknown": "warning"}


def write_junit(path: str | Path, name: str, judgements: Iterable[Mapping[str, Any]], *, unknown: str) -> None:
    """Write a check as a test suite: a case for every requirement.

    Args:
        path: The file.
        name: Name of the suite: what was checked.
        judgements: As the document of a check has them.
        unknown: How an undecided requirement counts: ``"pass"`` skips its case, otherwise it fails.
    """
    cases, failures, skipped = [], 0, 0
    for judgement in judgements:
        title = judgement["requirement"] + (f" [{judgement['group']}]" if judgement["group"] else "")
        body, message = "", _attribute(judgement["text"])
        if judgement["status"] == "unknown" and unknown == "pass":
            skipped += 1
            body = f"<skipped message={message}/>"
        elif judgement["status"] != "pass":
            failures += 1
            kind, text = _attribute(judgement["status"]), escape(_printable(judgement["text"]))
            body = f"<failure type={kind} message={message}>{text}</failure>"
        cases.append(f"    <testcase classname={_attribute(name)} name={_attribute(title)}>{body}</testcase>\n")
    counts = f'tests="{len(cases)}" failures="{failures}" skipped="{skipped}" errors="0"'
    page = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {counts}>\n'
        f"  <testsuite name={_attribute(name)} {counts}>\n{''.join(cases)}  </testsuite>\n</testsuites>\n"
    )
    with written_aside(path) as aside:
        aside.write_text(page, encoding="utf-8")


def workflow_lines(judgements: Iterable[Mapping[str, Any]], notes: Iterable[str] = ()) -> list[str]:
    """Lines that GitHub turns into annotations, for notes and for what does not pass.

    Example:
        >>> workflow_lines([{"status": "fail", "requirement": "ece <= 0.03", "text": "fails: 5%"}])
        ['::error title=ece <= 0.03::fails: 5%25']
    """
    lines = [f"::warning title=calibrant check::{_data(note)}" for note in notes]
    return lines + [
        f"::{kind} title={_data(judgement['requirement'], ':,')}::{_data(judgement['text'])}"
        for judgement in judgements
        if (kind := _ANNOTATIONS.get(judgement["status"])) is not None
    ]


def _data(text: str, reserved: str = "") -> str:
    """Text for a workflow command, with the reserved characters percent-encoded."""
    for character in f"%\r\n{reserved}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _attribute(text: str) -> str:
    return quoteattr(_printable(text))


def _printable(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(c if c in "\t\n" or (c >= " " and not 0xD800 <= ord(c) <= 0xDFFF) else "\ufffd" for c in text)
