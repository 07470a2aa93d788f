"""How every page begins: its title, and a policy by which the browser fetches nothing and runs our script alone."""

from __future__ import annotations

import base64
import hashlib

from calibrant.report.text import escape


def head(title: str, *, script: str | None = None, generator: str = "calibrant") -> str:
    """The beginning of a page, from the doctype to its title; the ``head`` element stays open.

    Args:
        title: as it is.
        script: the one script that may run; none if left out. JSON in a script element is not run.
        generator: what made the page.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="{escape(generator)}">\n'
        # Without an icon of its own a served page would make the browser ask for one.
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
    )


def policy(script: str | None = None) -> str:
    """The content security policy of a page with this script, or with none."""
    digest = base64.b64encode(hashlib.sha256((script or "").encode()).digest()).decode()
    run = f"'sha256-{digest}'" if script is not None else "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {run}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
