"""What to do after an audit: one sentence, and the exact command where there is one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Part = Mapping[str, Any]


@dataclass(frozen=True)
class CommandWords:
    """The command line of an audit, as far as the next command needs it.

    Attributes:
        files: the file of every model, by its name.
        val: the held-out file, or None.
        policy: the policy's file, or None.
        reading: the options that say how files are read, as they were given.
    """

    files: Mapping[str, str]
    val: str | None = None
    policy: str | None = None
    reading: Sequence[str] = ()

    def fit(self, file: str, *options: str) -> str:
        """The command that fits a policy on a file."""
        return shlex.join(["calibrant", "fit", file, *self.reading, *options])

    def check(self, file: str) -> str:
        """The command that judges the policy which `fit` writes on a file."""
        return shlex.join(["calibrant", "audit", file, *self.reading, "--policy", "policy.json"])

    def apply(self, file: str) -> str:
        """The command that decides about a file."""
        return shlex.join(["calibrant", "apply", self.policy or "policy.json", file, *self.reading])


def next_step(
    words: CommandWords | None, model: str, *, holds: str, split: str | None, level: str, policy: Part | None
) -> dict[str, str | None]:
    """The sentence and the command; in Python's words where no command line was used.

    Args:
        words: of the command line, or None.
        model: name of the model to go on with.
        holds: what its predictions hold.
        split: of its predictions, where they say.
        level: of the verdict on it.
        policy: what a policy does to them, as a document, or None.
    """
    if holds == "confidence":
        text = "Confidences alone can be judged but not repaired: save the logits or probabilities of every class."
        return {"text": text, "command": None}
    if words is None:
        return _in_python(split, level, policy)
    file = words.files.get(model, model)
    if policy is not None:
        return _after_policy(words, file, split, policy)
    if words.val is not None:
        text = f"{_task(level)}, on the held-out predictions; then judge that on these:"
        return {"text": text, "command": f"{words.fit(words.val)} && {words.check(file)}"}
    if split == "test":
        text = f"{_task(level)}, on held-out predictions (VALIDATION here), because nothing is fitted on test data:"
        return {"text": text, "command": words.fit("VALIDATION")}
    return {"text": f"{_task(level)}:", "command": words.fit(file)}


def _task(level: str) -> str:
    return "Decide when it may answer" if level == "good" else "Repair it, and decide when it may answer"


def _after_policy(words: CommandWords, file: str, split: str | None, policy: Part) -> dict[str, str | None]:
    options, where = [], file if split != "test" else "VALIDATION"
    if policy["menu"]:
        options = ["--target-risk", f"{policy['menu'][0]['risk']:g}"]
        text = "Fit again, on samples that the policy has not seen, with a risk that can be promised:"
    elif policy["kept"] == "no":
        text = "The policy does not fit these samples: fit another on labelled ones like them:"
    else:
        return {"text": "Write down the policy's answers:", "command": words.apply(file)}
    return {"text": text, "command": words.fit(where, *options)}


def _in_python(split: str | None, level: str, policy: Part | None) -> dict[str, str | None]:
    if policy is not None and policy["kept"] != "no" and not policy["menu"]:
        return {"text": "Decide about samples with the policy:", "command": "policy.decide(predictions)"}
    held_out = "val" if split == "test" else "predictions"
    return {"text": f"{_task(level)}:", "command": f"Policy.fit({held_out}, target_risk=0.05)"}
