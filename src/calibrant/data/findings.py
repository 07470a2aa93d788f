"""What a reader skipped and what it found odd: counted always, listed up to a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

OnError = Literal["raise", "skip"]

#: What is said of class names that are nearly the same.
ALIKE = "class name that differs from another only by case, spaces, '-' or '_'"
#: Places kept per kind of finding; the counts go on.
LISTED = 10_000


def printable(text: str, limit: int = 300) -> str:
    r"""A name out of a file, fit for a message of one line: cut, and line ends and control codes escaped.

    Example:
        >>> print(printable("Stühle\n\x1b[2J"))
        Stühle\n\x1b[2J
    """
    start = text[:limit]
    shown = start if start.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in start)
    return shown if len(text) <= limit and len(shown) <= 2 * limit else shown[: 2 * limit] + "..."


def some_names(names: Sequence[str], number: int = 20) -> str:
    """Names for a message: all of them, or the first few and how many there are.

    Example:
        >>> some_of(["train", "val", "test"], 2)
        'train, val, ... (3 in all)'
    """
    listed = ", ".join(printable(name, 60) for name in names[:number])
    return listed if len(names) <= number else f"{listed}, ... ({len(names)} in all)"


class Finding(NamedTuple):
    """One kind of finding: how often, and where (at most `LISTED` places)."""

    what: str
    times: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """What was skipped (it is not in the data set) and what is odd (it is).

    Example:
        >>> findings = Findings("skip")
        >>> findings.skip("val/x.JPEG", "inverted box", "x1 = 9, x2 = 3")
        >>> findings.odd("val/y.JPEG", "box without area")
        >>> print(findings.report())
        skipped: inverted box: 1 (val/x.JPEG (x1 = 9, x2 = 3))
        odd: box without area: 1 (val/y.JPEG)
    """

    skipped: tuple[Finding, ...] = ()
    odd: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "nothing skipped, nothing odd"

    def lines(self, places: int = 3) -> Iterator[str]:
        """One line per kind, with the first few places."""
        for title, findings in (("skipped", self.skipped), ("odd", self.odd)):
            for what, times, where in findings:
                shown = ", ".join(where[:places]) + (", ..." if times > places else "")
                yield f"{title}: {what}: {times}" + (f" ({shown})" if shown else "")

    def __add__(self, other: Report) -> Report:
        joined = Findings("skip")
        for report in (self, other):
            joined.add(report)
        return joined.report()


class Findings:
    """Collects a reader's findings; with ``on_error="raise"`` the first thing that must be skipped is an error."""

    def __init__(self, on_error: OnError = "raise"):
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error takes 'raise' or 'skip', got {on_error!r}.")
        self.on_error = on_error
        self._kinds: dict[tuple[bool, str], tuple[list[int], list[str]]] = {}

    def skip(self, where: str, what: str, detail: str = "") -> None:
        """Something is wrong with a sample: an error, or skipped, counted under ``what`` and listed with ``detail``."""
        reason = f" ({printable(detail)})" if detail else ""
        if self.on_error == "raise":
            raise ValueError(f"{printable(where)}: {what}{reason}.")
        self._record(True, printable(where) + reason, what)

    def leave_out(self, where: str, what: str) -> None:
        """A sample is left out by rule, not by mistake (a class that was not asked for): counted, never an error."""
        self._record(True, printable(where), what)

    def odd(self, where: str, what: str) -> None:
        """A sample is kept, but its user should know."""
        self._record(False, printable(where), what)

    def add(self, report: Report) -> None:
        """Take over the findings of another report."""
        for skipped, findings in ((True, report.skipped), (False, report.odd)):
            for what, times, where in findings:
                counter, places = self._kinds.setdefault((skipped, what), ([0], []))
                counter[0] += times
                places.extend(where[: LISTED - len(places)])

    def reasons(self, kinds: int = 5) -> str:
        """Why samples were skipped, the first kinds with their counts: "inverted box (3), hidden file (1)"."""
        skipped = [f"{what} ({counter[0]})" for (is_skipped, what), (counter, _) in self._kinds.items() if is_skipped]
        return ", ".join(skipped[:kinds]) + (", ..." if len(skipped) > kinds else "")

    def report(self) -> Report:
        """All findings so far, skipped and odd, in the order of their first appearance."""
        kinds = [(skipped, Finding(what, n[0], tuple(w))) for (skipped, what), (n, w) in self._kinds.items()]
        return Report(tuple(f for skipped, f in kinds if skipped), tuple(f for skipped, f in kinds if not skipped))

    def _record(self, skipped: bool, where: str, what: str) -> None:
        counter, places = self._kinds.setdefault((skipped, what), ([0], []))
        counter[0] += 1
        if len(places) < LISTED:
            places.append(where)
