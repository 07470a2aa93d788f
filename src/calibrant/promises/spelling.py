"""Promises as people write them, in the language of ``calibrant check``.

===========================  ============================================
``risk <= 5%``               of all answers
``precision[dog] >= 0.95``   of the answers that say a class
``recall[cat] >= 0.9``       of the samples of a class
``cost <= 0.4``              of an answer; the matrix comes besides
``expected-risk <= 0.05``    of all samples
===========================  ============================================

The spellings ``precision=dog:0.95``, ``recall=cat:0.9`` and ``expected-risk:0.05`` are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from calibrant.base.checks import short
from calibrant.promises.base import PROMISES, Promise
from calibrant.promises.bounds import check_open_share

_COMPARED = re.compile(r"\s*([a-z_-]+)\s*(?:\[(.*)\])?\s*(<=|>=|<|>)\s*([^\s%]+)\s*(%?)\s*", re.DOTALL)
_COLON = re.compile(r"\s*([a-z_-]+)\s*(?:=(.*))?:\s*([^\s%]*)\s*(%?)\s*", re.DOTALL)


def parse_promises(texts: str | Promise | Sequence[str | Promise], **more: Any) -> Promise:
    """The promise that people ask for: one, or several of precision; written, or made.

    Args:
        texts: what is asked for.
        more: what a written promise needs besides: the costs of a cost, or that a risk is of every class.

    Example:
        >>> parse_promises("precision[dog] >= 95%").shares[0].share
        0.95
        >>> parse_promises("expected-risk:0.05").target
        0.05
    """
    entries = list(texts) if isinstance(texts, list | tuple) else [texts]
    made = [entry for entry in entries if isinstance(entry, Promise)]
    if made and more:
        raise ValueError(f"{next(iter(more))} does not go with {made[0].title}, which is made already")
    promises = [entry if isinstance(entry, Promise) else parse_promise(entry, **more) for entry in entries]
    if not promises:
        raise ValueError(f"promise must be {_examples()}, got nothing")
    return promises[0] if len(promises) == 1 else promises[0].join(promises[1:])


def parse_promise(text: Any, **more: Any) -> Promise:
    """One promise as people write it."""
    match = (_COMPARED.fullmatch(text) or _COLON.fullmatch(text)) if isinstance(text, str) else None
    name = match[1].replace("_", "-") if match else ""
    if match is None or name not in PROMISES:
        raise ValueError(f"promise must be {_examples()}, got {short(text)}")
    cls, label, (*sign, digits, percent) = PROMISES[name], match[2], match.groups()[2:]
    if (label is not None) != ("CLASS" in cls.spelling) or (sign and sign[0][0] not in cls.spelling):
        raise ValueError(f"promise must be {cls.spelling}, got {short(text)}")
    try:
        value = float(digits) / (100 if percent else 1)
    except ValueError:
        raise ValueError(f"promise {short(text)} must end in a number, got {digits[:40]!r}") from None
    if "SHARE" in cls.spelling:
        value = check_open_share(f"the share of {short(text)}", value)
    return cls.read(None if label is None else label.strip(), value, **more)


def _examples() -> str:
    *first, last = [cls.spelling for cls in PROMISES.values()]
    return f"{', '.join(first)} or {last}"
