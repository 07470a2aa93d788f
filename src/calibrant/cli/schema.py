"""``calibrant schema``: the JSON schemas of the documents that other commands print."""

from __future__ import annotations

from typing import Annotated

import typer

from calibrant._validation import did_you_mean
from calibrant.cli.console import print_json, print_table
from calibrant.cli.document_schemas import SCHEMAS
from calibrant.cli.options import Json, Quiet


def schema_command(
    command: Annotated[
        str | None, typer.Argument(help="The command whose --json document is described; without, a list of them.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print the JSON schema of the document that a command prints with --json, or list them.

    Every such document names its format and version. Within a version entries may be added; none is removed or changes
    its meaning.
    """
    if command is not None and command not in SCHEMAS:
        hint = did_you_mean(command, SCHEMAS)
        raise ValueError(f"no schema for {command!r}; there are {', '.join(SCHEMAS)}{hint}")
    if command is not None:
        print_json(SCHEMAS[command])
        return
    facts = {name: schema["properties"] for name, schema in SCHEMAS.items()}
    rows = [[name, part["format"]["const"], str(part["version"]["const"])] for name, part in facts.items()]
    if as_json:
        print_json({name: SCHEMAS[name]["$id"] for name in SCHEMAS})
    elif not quiet:
        print_table("Documents of --json", ["command", "format", "version"], rows, numbers=False)
