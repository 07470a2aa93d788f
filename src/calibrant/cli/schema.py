"""``calibrant schema``: JSON schemas (draft 2020-12) of the documents that ``--json`` prints.

Each document names its format and version. Within a version entries may be added, and none is removed or changes its
meaning; so objects are open, and what is required is listed.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from calibrant.base.checks import did_you_mean
from calibrant.cli.console import print_json, print_table
from calibrant.cli.options import Json, Quiet
from calibrant.promises import PROMISES

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
VERSION = 1  # of every document below

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": ["number", "null"]}
SHARE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}


def _optional(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_of(*words: str) -> Schema:
    return {"enum": list(words)}


def _object(entries: dict[str, Schema], *optional: str) -> Schema:
    """An object with all of these entries, but for the optional ones."""
    return {"type": "object", "properties": entries, "required": [name for name in entries if name not in optional]}


def _document(name: str, title: str, entries: dict[str, Schema], *optional: str) -> Schema:
    facts: dict[str, Schema] = {"format": {"const": f"calibrant.{name}"}, "version": {"const": VERSION}}
    identity = {"$schema": DIALECT, "$id": f"urn:calibrant:{name}:{VERSION}", "title": title}
    return identity | _object(facts | entries, *optional)


LEVEL = _one_of("good", "fair", "poor", "info")
INTERVAL = _object({"value": NUMBER, "low": NUMBER, "high": NUMBER})
VALUED = _object({"label": TEXT, "value": NUMBER, "low": NUMBER, "high": NUMBER, "unit": TEXT, "note": TEXT})
VERDICT = _object({"level": TEXT, "headline": TEXT, "text": TEXT})
NEXT = _object({"text": TEXT, "command": _optional(TEXT)})
FINDING = _object({"level": LEVEL, "title": TEXT, "text": TEXT, "evidence": TEXT}, "evidence")
METRIC = _object({"name": TEXT, "label": TEXT, "value": NUMBER, "low": NUMBER, "high": NUMBER}, "low", "high")
TENSOR = _object({"name": TEXT, "type": _optional(TEXT), "shape": _optional({"type": "array"})})
ANSWER_COUNTS = _object({"samples": COUNT, "accepted": COUNT, "errors": _optional(COUNT)})
METHOD = _one_of("lac", "aps", "raps", "class-conditional")

#: Sizes and coverage of prediction sets.
SET_COUNTS: dict[str, Schema] = {
    "samples": COUNT,
    "coverage": INTERVAL,
    "mean_size": INTERVAL,
    "empty": INTERVAL,
    "single": INTERVAL,
    "where_abstained": _object({"samples": COUNT, "coverage": INTERVAL, "mean_size": INTERVAL, "one_or_two": INTERVAL}),
    "classes": _list(_object({"class": {"type": ["string", "integer"]}, "samples": COUNT, "coverage": INTERVAL})),
}

THRESHOLD = _object(
    {
        "accept_from": {"anyOf": [NUMBER, _one_of("everything", "nothing")]},
        "method": TEXT,
        "target_risk": SHARE,
        "confidence": SHARE,
        "samples": COUNT,
        "accepted": COUNT,
        "errors": COUNT,
        "coverage": INTERVAL,
        "risk": INTERVAL,
        "needed": _optional(COUNT),
        "reason": TEXT,
        "menu": _list(_object({"risk": SHARE, "coverage": SHARE})),
    },
    "menu",
)

#: A share that a promise costs, or that it is about: so many of so many.
MEASURE = _object({"name": TEXT, "class": _optional(TEXT), "count": COUNT, "of": COUNT, **INTERVAL["properties"]})

PROMISE_KIND = _one_of(*PROMISES)

#: What a policy promises, where it is not the risk of all answers or of every group.
PROMISE = _object(
    {
        "of": PROMISE_KIND,
        "by_class": FLAG,
        "shares": _list(_object({"class": COUNT, "name": TEXT, "share": SHARE, "samples": COUNT}, "samples")),
        "target": NUMBER,
        "costs": _list(_list({"type": "number", "minimum": 0})),
        "abstain_cost": NUMBER,
        "seen": _object({"rows": COUNT, "loss": {"type": "number", "minimum": 0}}),
    },
    "by_class", "shares", "target", "costs", "abstain_cost", "seen",
)  # fmt: skip

#: What came of a promise on labelled samples.
PROMISE_SEEN = _object(
    {"of": PROMISE_KIND, "by_class": FLAG, "promised_loss": SHARE, "rows": COUNT, "mean_loss": SHARE, "words": TEXT,
     "result": TEXT, "price": TEXT},
    "price",
)  # fmt: skip

_PROMISES = _one_of("yes", "no", "no sign", "unclear", "nothing", "unknown")
_STATUS = _one_of("pass", "fail", "unknown")
_HOLDS = _one_of("no", "no sign", "unknown")

AUDIT = _document(
    "audit",
    "What calibrant audit --json prints",
    {
        "calibrant": TEXT,
        "created": TEXT,
        "title": TEXT,
        "level": SHARE,
        "seed": COUNT,
        "warnings": _list(TEXT),
        "verdict": VERDICT,
        "next": NEXT,
        "models": _list(
            _object(
                {
                    "name": TEXT,
                    "samples": COUNT,
                    "unit": TEXT,
                    "classes": _optional(COUNT),
                    "holds": TEXT,
                    "kind": TEXT,
                    "verdict": VERDICT,
                    "notes": _list(TEXT),
                    "metrics": _list(METRIC),
                    "findings": _list(FINDING),
                }
            )
        ),
        "comparisons": _list(_object({"first": TEXT, "second": TEXT, "rows": {"type": "array"}})),
        "policy": _optional(
            _object(
                {
                    "model": TEXT,
                    "level": LEVEL,
                    "title": TEXT,
                    "text": TEXT,
                    "evidence": TEXT,
                    "kept": _PROMISES,
                    "fitted_on_these": FLAG,
                    "promise": PROMISE_SEEN,
                    "rows": _list(VALUED),
                    "groups": {"type": "array"},
                    "sets": _optional(
                        _object(
                            {
                                "level": LEVEL,
                                "title": TEXT,
                                "text": TEXT,
                                "hold": _HOLDS,
                                "method": METHOD,
                                "promised": SHARE,
                                "rows": _list(VALUED),
                                "classes": _list(_object({"name": TEXT, "samples": COUNT, "value": SHARE})),
                            }
                        )
                    ),
                }
            )
        ),
    },
)

CHECK = _document(
    "check",
    "What calibrant check --json prints",
    {
        "status": _STATUS,
        "notes": _list(TEXT),
        "requirements": _list(
            _object(
                {
                    "requirement": TEXT,
                    "metric": TEXT,
                    "group": _optional(TEXT),
                    "status": _STATUS,
                    "value": NUMBER,
                    "low": NUMBER,
                    "high": NUMBER,
                    "limit": NUMBER,
                    "samples": COUNT,
                    "needed": _optional(COUNT),
                    "text": TEXT,
                }
            )
        ),
    },
)

FIT = _document(
    "policy",
    "What calibrant fit --json prints, which is the policy's file",
    {
        "calibrant": TEXT,
        "summary": TEXT,
        "how": TEXT,
        "takes": _one_of("logits", "probabilities"),
        "kind": _one_of("classification", "segmentation"),
        "classes": COUNT,
        "class_names": _optional(_list(TEXT)),
        "positive": _optional(COUNT),
        "target_risk": SHARE,
        "confidence": SHARE,
        "calibrator": _optional(_object({"name": TEXT})),
        "score": _object({"name": TEXT, "of": _one_of("logits", "calibrated")}),
        "threshold": THRESHOLD,
        "group": _optional(TEXT),
        "groups": _optional({"type": "object", "additionalProperties": THRESHOLD}),
        "evidence": _object({"samples": COUNT, "for_choice": COUNT, "for_threshold": COUNT, "seed": COUNT}),
        "sets": _object(
            {
                "level": SHARE,
                "method": METHOD,
                "quantiles": _list({"anyOf": [{"type": "number"}, _one_of("all")]}),
                "samples": _list(COUNT),
                "summary": TEXT,
                "seen": _object(SET_COUNTS),
            }
        ),
        "promise": PROMISE,
        "class_thresholds": _list(
            _object({"class": COUNT, "name": TEXT, "group": _optional(TEXT), "threshold": THRESHOLD})
        ),
        "price": _optional(_object({"summary": TEXT, "constant": TEXT, "measures": _list(MEASURE)})),
        "checksum": TEXT,
    },
    "sets", "promise", "class_thresholds", "price",
)  # fmt: skip

APPLY = _document(
    "apply",
    "What calibrant apply --json prints",
    {
        "samples": COUNT,
        "accepted": COUNT,
        "coverage": INTERVAL,
        "errors": _optional(COUNT),
        "risk": INTERVAL,
        "risk_of_all": SHARE,
        "target_risk": SHARE,
        "promised_risk": SHARE,
        "promise_kept": _PROMISES,
        "fitted_on_these": FLAG,
        "images": _optional({"type": "object", "additionalProperties": COUNT}),
        "groups": {"type": "object", "additionalProperties": ANSWER_COUNTS},
        "classes": {"type": "object", "additionalProperties": ANSWER_COUNTS},
        "promise": PROMISE_SEEN,
        "price": _optional(_list(MEASURE)),
        "sets": _optional(_object({"level": SHARE, "method": METHOD, "hold": _HOLDS, **SET_COUNTS})),
    },
    "price",
)

_WRITTEN = _object({"path": TEXT, "samples": COUNT})

HOLDOUT = _document(
    "holdout",
    "What calibrant holdout --json prints",
    {"fit": _WRITTEN, "judge": _WRITTEN, "share": SHARE, "by": _optional(TEXT), "seed": COUNT, "next": NEXT},
)

EXPORT = _document(
    "export",
    "What calibrant export --json prints",
    {
        "path": TEXT,
        "inputs": _list(TENSOR),
        "outputs": _list(TENSOR),
        "opset": COUNT,
        "rows": COUNT,
        "accepted": COUNT,
        "undecided": COUNT,
        "largest_difference": NUMBER,
        "checks": _list(
            _object(
                {
                    "against": _one_of("policy", "label output", "expected"),
                    "rows": COUNT,
                    "differing": COUNT,
                    "text": TEXT,
                }
            )
        ),
        "not_checked": _list(TEXT),
        "remarks": _list(TEXT),
    },
)

COMPARE = _document("compare", "What calibrant compare --json prints", {"folder": TEXT, "runs": COUNT, "failed": COUNT})

PREDICT = _document("predict", "What calibrant predict --json prints", {"samples": COUNT, "file": TEXT})

WATCH_TEST = _object({"name": TEXT, "group": TEXT, "alpha": SHARE, "alarm_since": _optional(TEXT)})
RATE = _object({"group": TEXT, "answers": COUNT, "errors": COUNT, "value": NUMBER, "low": NUMBER, "high": NUMBER})

MONITOR = _document(
    "monitor",
    "What calibrant monitor --json prints",
    {
        "calibrant": TEXT,
        "created": TEXT,
        "status": _one_of("alarm", "quiet"),
        "headline": TEXT,
        "promised_risk": SHARE,
        "cost": _optional(_object({"mean": NUMBER, "promised": NUMBER})),
        "alpha": SHARE,
        "by_group": _optional(TEXT),
        "alarms": _list(_object({"name": TEXT, "group": TEXT, "since": TEXT, "text": TEXT})),
        "sentences": _list(TEXT),
        "risk": RATE,
        "groups": _list(RATE),
        "tests": _list(WATCH_TEST),
        "coverage": INTERVAL,
        "reference_coverage": INTERVAL,
        "implied_risk": SHARE,
        "batches": _list(_object({"name": TEXT, "samples": COUNT, "accepted": COUNT, "coverage": SHARE})),
        "assumptions": _list(TEXT),
    },
)

#: By the command that prints the document.
SCHEMAS: dict[str, Schema] = {
    "apply": APPLY,
    "audit": AUDIT,
    "check": CHECK,
    "compare": COMPARE,
    "export": EXPORT,
    "holdout": HOLDOUT,
    "fit": FIT,
    "monitor": MONITOR,
    "predict": PREDICT,
}


def versioned(command: str, entries: dict[str, Any]) -> dict[str, Any]:
    """A document of a command, with its format and version before what it says."""
    facts = SCHEMAS[command]["properties"]
    return {"format": facts["format"]["const"], "version": facts["version"]["const"], **entries}


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
