"""Errors in the words of the command line: options instead of Python's keywords, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Sequence

from calibrant._validation import did_you_mean

#: Arguments of Python by the options that stand for them.
_OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in ("target_risk", "target_coverage", "class_names", "ignore_index", "input_shape")
}
_FILES = (".npz", ".npy", ".parquet", ".safetensors", ".csv", ".tsv", ".jsonl", ".ndjson")
#: What other tools call our commands.
_OTHER_NAMES = {
    "calibrate": "fit", "repair": "fit", "policy": "fit", "report": "audit", "evaluate": "audit", "eval": "audit",
    "check": "audit", "test": "audit", "plot": "audit", "decide": "apply", "run": "train", "losses": "methods",
    "onnx": "export", "inspect": "data",
}  # fmt: skip


def in_options(message: str, words: Sequence[str], commands: Sequence[str]) -> str:
    """A message about wrong input in the words of the command line.

    Args:
        message: one sentence.
        words: of the command line, the command first.
        commands: names of all commands.

    Example:
        >>> from calibrant.cli.hints import in_options
        >>> in_options("target_risk must be a number between 0 and 1, got 5.0", ["fit", "x.npz"], ["fit"])
        '--target-risk must be a number between 0 and 1, got 5.0 (5% is 0.05)'
    """
    before, mark, python = message.partition(" (in Python ")
    for name, option in _OPTIONS.items():
        before = re.sub(rf"(?<![-\w]){name}\b", option, before)
    before = re.sub(r"^((?:\S+: )?)(confidence|level) must (be|lie)", r"\1--\2 must \3", before)
    before = before.replace('kind="segmentation"', "--segmentation").replace(
        "columns maps our names", "--column maps our names"
    )
    if "got 'kind'" in before:
        before = before.partition("; did you mean")[0]
    hint = _hint(before, words, commands)
    return (before.removesuffix(".") if hint.startswith(";") else before) + hint + mark + python


def _hint(message: str, words: Sequence[str], commands: Sequence[str]) -> str:
    """What to do, where the message does not say it."""
    command, files = words[0] if words else "", [word for word in words[1:] if word.lower().endswith(_FILES)]
    share = re.search(r"--(target-risk|target-coverage|confidence|level)\b.* got (\d+(?:\.\d+)?)$", message)
    if share and 1 < float(share[2]) < 100:
        return f" ({float(share[2]):g}% is {float(share[2]) / 100:g})"
    if "unable to parse" in message and any(re.fullmatch(r"\d+(\.\d+)?%", word) for word in words):
        return " (5% is written 0.05)"
    if message.startswith("No such command"):
        name = _OTHER_NAMES.get(command)
        guess = f"; did you mean {name!r}?" if name else did_you_mean(command, commands)
        return guess or f" Known are {', '.join(commands)}."
    if command == "compare" and files:
        how = f"calibrant audit {' '.join(files)} compares files of predictions"
        return f"; compare trains methods by a recipe: {how}"
    if "not a policy" in message and command == "apply" and words[1:2] == files[:1]:
        return "; the policy comes first: calibrant apply policy.json predictions"
    if "not a policy" in message:
        return "; a policy is the .json file that calibrant fit writes"
    if "unexpected extra argument" in message and command in ("fit", "apply") and files:
        return "; one file of predictions is read, with its labels in it"
    return "; images take --segmentation" if "got 'kind'" in message else ""
