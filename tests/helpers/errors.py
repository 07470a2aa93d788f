"""Errors by the facts that a user needs from them, in whatever words."""

import re


def facts(*texts):
    """A pattern for ``pytest.raises(match=...)``: all of these occur in the message, in any order.

    Example:
        >>> pattern = facts("alpha", "1.5")
        >>> [bool(re.search(pattern, text)) for text in ("got 1.5 as alpha", "alpha must be below 1")]
        [True, False]
    """
    return r"(?s)\A" + "".join(f"(?=.*{re.escape(text)})" for text in texts)
