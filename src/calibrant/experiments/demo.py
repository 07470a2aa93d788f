"""The demonstration: one overconfident network, audited, repaired, made to abstain with a promise, exported and run.

Its data are drawn from a seed, so there are as many validation and test samples as its claims need. What it says holds
on other machines and for other seeds; `benchmarks/demo.py` counts in how many.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from calibrant.auditing import Audit, audit
from calibrant.base.extras import MissingExtraError
from calibrant.base.files import remove_leftovers, write_json
from calibrant.base.numbers import count, fixed, percent, round_percent
from calibrant.base.progress import Progress, silent
from calibrant.data import Dataset, read
from calibrant.experiments.comparison import has_record
from calibrant.export import Exported
from calibrant.policy import Policy
from calibrant.predictions import Predictions
from calibrant.report import write_demonstration
from calibrant.training import Recipe, check_recipe, load_model, read_record, train

RISK, CONFIDENCE = 0.05, 0.99
#: What is in the folder of the demonstration.
RUN, TEST, VALIDATION = "run", "run/test.npz", "run/validation.npz"
POLICY, AUDIT, ONNX, PAGE, RECORD = "policy.json", "audit.html", "model.onnx", "index.html", "demo.json"
#: The same for files of one's own; with these names the commands run inside the folder.
COMMANDS = (
    f"calibrant fit {VALIDATION} --target-risk {RISK:g} --confidence {CONFIDENCE:g} -o {POLICY}",
    f"calibrant apply {POLICY} {TEST} -o decisions.parquet",
    f"calibrant audit {TEST} --val {VALIDATION} --policy {POLICY} -o {AUDIT}",
)
#: How many pictures are shown of each kind, and how many the exported graph is run on.
PICTURES, ONNX_RUNS = 16, 4000
#: The stages, and the share of the time that each takes, of 10 in total.
_STAGES = {"drawing pictures": 1.0, "training": 6.5, "predicting": 0.3, "fitting a policy": 0.2, "auditing": 0.8,
           "exporting": 1.2, "done": 0.0}  # fmt: skip
_SIZES = {
    "epochs": "Epochs",
    "train": "Training pictures",
    "validation": "Validation pictures",
    "test": "Test pictures",
}
_OPTIONS: dict[str, Any] = {"context": 0.8, "ambiguous": 0.0}
_FULL = {"epochs": 50, "train": 4000, "validation": 12000, "test": 10000}
_QUICK = {"epochs": 32, "train": 3000, "validation": 8000, "test": 4000}


@dataclass(frozen=True)
class Demo:
    """What the demonstration leaves."""

    page: Path
    document: Mapping[str, Any]  # every number and sentence on the page
    audit: Audit  # of the network on test data, with the policy
    policy: Policy  # fitted on validation data


def demo_recipe(seed: int = 0, quick: bool = False) -> Recipe:
    """The recipe of the network: without augmentation, and until it has memorised its samples."""
    size = _QUICK if quick else _FULL
    options = {"samples": size["validation"]}
    return check_recipe(
        {
            "title": "An overconfident network, on scenes",
            "seed": seed,
            "data": {
                "layout": "scenes",
                "options": _OPTIONS | {"seed": seed},
                "split_options": {"train": {"samples": size["train"]}, "test": {"samples": size["test"]}},
                # Not as the recipe's validation set, which every epoch would predict.
                "also": {"validation": {"split": "val", "options": options}},
            },
            "model": {"name": "small_cnn", "width": 16},
            "optimiser": {"rate": 0.2, "nesterov": True, "weight_decay": 0.0},
            "schedule": {"name": "cosine", "warmup": 1},
            "training": {"epochs": size["epochs"], "batch_size": 32, "channels_last": True},
        },
        "the demonstration",
    )


def run_demo(folder: str | Path, *, seed: int = 0, quick: bool = False, progress: Progress = silent) -> Demo:
    """Train one network, repair it, deploy it with a promise, and write a page about the results.

    A folder of an earlier, interrupted call with the same arguments is continued.

    Args:
        folder: For the run, the files and the page.
        seed: Seed of the data and of the network.
        quick: Less data and fewer epochs.
        progress: Called as it advances; the total is 10.
    """
    started = time.monotonic()
    folder, stages = Path(folder), _WholeProgress(progress)
    _claim(folder, seed, quick)
    stages("drawing pictures")
    with _one_thread():
        train(demo_recipe(seed, quick), folder / RUN, resume=True, event_log=stages.log)
    test, validation = (Predictions.open(folder / file) for file in (TEST, VALIDATION))
    stages("fitting a policy")
    policy = Policy.fit(validation, target_risk=RISK, confidence=CONFIDENCE)
    policy.save(folder / POLICY)
    stages("auditing")
    report = audit({TEST: test}, val=validation, policy=policy, reproduce=COMMANDS[-1])
    report.to_html(folder / AUDIT)
    stages("exporting")
    data = read("scenes", "test", **_OPTIONS, seed=seed, samples=min(ONNX_RUNS, len(test)))
    exported = _export(folder, policy, data)
    document = _document(report, policy, _QUICK if quick else _FULL, exported) | _pictures(policy, test, data)
    document["facts"] += [("Seed", seed), ("Seconds", round(time.monotonic() - started))]
    document["reproduce"] = f"calibrant demo --seed {seed}{' --quick' if quick else ''}"
    write_demonstration(folder / PAGE, document)
    stages("done")
    return Demo(folder / PAGE, document, report, policy)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread of PyTorch, so that the numbers do not depend on the number of cores.

    Two threads train so small a network no faster, and many times more slowly if the machine is busy.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _DemoRecord(BaseModel):
    """The record that identifies the folder of a demonstration."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["calibrant.demo"]
    seed: int
    quick: bool


def _claim(folder: Path, seed: int, quick: bool) -> None:
    """Claim a folder for the demonstration; refuse one that holds anything else, or was made with other arguments."""
    if has_record(folder, RECORD, "demonstration"):
        record = read_record(folder / RECORD, _DemoRecord, "name a new folder")
        if (record.seed, record.quick) != (seed, quick):
            words = f"--seed {record.seed}{' --quick' if record.quick else ''}"
            raise ValueError(f"{folder} holds a demonstration made with {words}; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECORD, {"format": "calibrant.demo", "seed": seed, "quick": quick})
    remove_leftovers(folder)


class _WholeProgress:
    """The progress of the whole, from that of its stages."""

    def __init__(self, progress: Progress):
        self.progress = progress
        self.steps = 1

    def __call__(self, stage: str, share: float = 0.0) -> None:
        """A stage has begun, or this share of it is done."""
        names = list(_STAGES)
        before = sum(_STAGES[name] for name in names[: names.index(stage)])
        self.progress(stage, before + share * _STAGES[stage], 10)

    def log(self, event: str, numbers: Mapping[str, Any]) -> None:
        """An event of the training."""
        self.steps = numbers.get("steps", self.steps)
        if event in ("start", "step"):
            self("training", numbers["step"] / self.steps)
        elif event == "predicting":
            self("predicting")


def _export(folder: Path, policy: Policy, data: Dataset) -> Exported | str:
    """Write network and policy as one graph, after running it on the pictures; or the reason why that is impossible."""
    from calibrant.export import export_onnx

    model, shape, _ = load_model(folder / RUN)
    images = np.stack([np.asarray(data.inputs[index]) for index in range(len(data))]).transpose(0, 3, 1, 2)
    pixels = images.astype(np.float32) / 255
    try:
        return export_onnx(policy, folder / ONNX, model=model, input_shape=shape, inputs=pixels)
    except MissingExtraError as error:
        return str(error)


def _story(report: Audit, exported: Exported | str) -> dict[str, Any]:
    """The numbers that the page is about."""
    # The last model is the calibrated one, or, where calibrating does not help, the first.
    before, after = ({m["name"]: m["value"] for m in report.models[k]["metrics"]} for k in (0, -1))
    answered, wrong, all_wrong = (row["value"] for row in report.document["policy"]["rows"])
    return {
        "claims": before["mean_confidence"], "right": before["accuracy"],
        "ece": before["ece_15"], "ece_repaired": after["ece_15"],
        "answered": answered, "wrong": wrong, "all_wrong": all_wrong,
        "exported": float(isinstance(exported, Exported)),
    }  # fmt: skip


def _document(report: Audit, policy: Policy, size: Mapping[str, int], exported: Exported | str) -> dict[str, Any]:
    """The story in numbers and in sentences."""
    story, outcome = _story(report, exported), report.document["policy"]
    shares = {name: "none" if value is None else percent(value) for name, value in story.items()}
    claims = f"claims {shares['claims']} and is right {shares['right']} of the time"
    is_kept = story["wrong"] is not None and story["wrong"] <= RISK
    promise = f"at most {round_percent(RISK)} of its answers are wrong"
    run = f"not exported: {exported}"
    if isinstance(exported, Exported):
        run = (
            f"given the pixels of {count(exported.rows)} test pictures, onnxruntime answered "
            f"{count(exported.accepted)} and made the same decisions as network and policy"
        )
    return {
        "title": "One network: before, repaired, deployed",
        "created": datetime.date.today().isoformat(),
        "story": story,
        "level": "good" if is_kept else outcome["level"],
        "outcome": "The promise is kept on these pictures" if is_kept else outcome["title"],
        "headline": f"It {claims}. Repaired, it answers {shares['answered']} of the pictures, and {shares['wrong']} of "
        f"its answers are wrong instead of {shares['all_wrong']}.",
        "lead": f"The promise, made before these {count(size['test'])} pictures were seen: with "
        f"{round_percent(CONFIDENCE)} confidence, {promise}.",
        "before": {
            "value": f"{fixed(100 * (story['claims'] - story['right']), 2)} points",
            "aside": "overconfident",
            "text": f"Trained with cross-entropy on {count(size['train'])} pictures, the network {claims}.",
            "reliability": report.models[0]["reliability"],
            "caption": f"Before: calibration error {shares['ece']}",
        },
        "repaired": {
            "value": shares["ece_repaired"],
            "aside": f"calibration error, was {shares['ece']}",
            "text": f"Fitted in seconds, on {count(size['validation'])} other pictures. {policy.method_summary}",
            "reliability": report.models[-1]["reliability"],
            "caption": f"Repaired: calibration error {shares['ece_repaired']}",
        },
        "deployed": {
            "value": f"{shares['wrong']} wrong",
            "aside": f"instead of {shares['all_wrong']}",
            "text": f"It answers {shares['answered']} of the pictures and declines the rest. Promised: {promise}. "
            "Network and decision are one ONNX file.",
        },
        "commands": COMMANDS,
        "facts": [(word, count(size[name])) for name, word in _SIZES.items()] + [("ONNX", run)],
        "files": [
            ("The audit: every number with its interval", AUDIT),
            ("The policy: calibrator, score and threshold", POLICY),
            *([("Network and policy as one ONNX graph", ONNX)] if isinstance(exported, Exported) else []),
        ],
    }


def _pictures(policy: Policy, test: Predictions, data: Dataset) -> dict[str, list[dict[str, Any]]]:
    """The first pictures that are answered and the first that are declined, and what the network says of them."""
    decisions = policy.decide(test.logits[: len(data)])
    correct = decisions.labels == test.labels[: len(data)]
    return {
        name: [
            {
                "png": _png(data, index),
                "label": data.classes[decisions.labels[index]],
                "truth": data.classes[test.labels[index]],
                "right": bool(correct[index]),
                "confidence": float(decisions.confidence[index]),
            }
            for index in np.flatnonzero(mask)[:PICTURES].tolist()
        ]
        for name, mask in (("answered", decisions.accept), ("declined", ~decisions.accept))
    }


def _png(data: Dataset, index: int) -> str:
    stream = io.BytesIO()
    data.inputs[index].save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()
