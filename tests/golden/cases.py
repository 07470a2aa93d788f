"""What the golden runs run: command lines on the inputs, and the files whose values count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers.paper_runs import CIFAR, MNIST, NAMES, TINY, fake_run, planned


@dataclass(frozen=True)
class Case:
    """Commands in the order in which they run, in a folder that holds the inputs.

    Attributes:
        commands: what follows ``calibrant``; each runs with ``--json``, and its document counts.
        files: files that the commands write, and whose contents count: decisions, predictions, graphs, tables.
        slow: whether something is trained.
        entries: the entries of a document that count, by the number of its command, where another case has the others.
        prepare: writes further inputs into the folder.
    """

    commands: tuple[str, ...]
    files: tuple[str, ...] = ()
    slow: bool = False
    entries: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None


def audit(words: str, *before: str) -> Case:
    return Case((*before, f"audit {words} -o none --replicates 200"))


def fit_and_apply(words: str, val: str = "val.npz", new: str = "test.npz", out: str = "decisions.csv") -> Case:
    """A policy, what it decides about other samples, and how an audit judges it."""
    commands = (
        f"fit {val} {words} -o policy.json",
        f"apply policy.json {new} -o {out}",
        f"audit {new} --policy policy.json -o none --replicates 100",
    )
    return Case(commands, (out,), entries={2: ("policy",)})


def paper(item: str, table: str, recipe: str, methods: tuple[str, ...], data: tuple[Any, dict[str, int]]) -> Case:
    """An item of a paper, of runs that were drawn; ``data`` are their classes and the recorded numbers of samples."""

    def prepare(folder: Path) -> None:
        for k, method in enumerate(methods):
            plan = planned(recipe, method)
            fake_run(folder / f"runs/{k}", plan, *data, sets=plan.data.also, accuracy=0.9 - 0.2 * k, predicted=60)

    command = f"paper {item} --runs {' '.join(f'runs/{k}' for k in range(len(methods)))} -o out"
    return Case((command,), (f"out/{item}/{table}.csv",), entries={0: ("item",)}, prepare=prepare)


IMAGENET = {"train": 528_000, "test": 50_000}
RARE = "--column labels=fraud --column probabilities=probability --positive 1"

CASES: dict[str, Case] = {
    "audit-logits": audit("test.npz --group site"),
    "audit-validated": audit("test.npz --val val.npz"),
    "audit-probabilities": audit("colours.csv --column labels=truth --column probabilities=p_*"),
    "audit-binary": audit("binary.csv --column labels=answer --column probabilities=probability --positive yes"),
    "audit-imbalanced": audit(f"rare_test.csv {RARE}"),
    "audit-confidence": audit("answers.jsonl"),
    "audit-segmentation": audit("test_masks.npz"),
    "audit-tokens": audit("tokens.npz"),
    "audit-two-models": audit("test.npz other.npz"),
    "audit-policy": audit("test.npz --policy policy.json", "fit val.npz --target-risk 0.1 -o policy.json"),
    "fit-risk": fit_and_apply("--target-risk 0.1"),
    "fit-risk-never": fit_and_apply("--target-risk 0.001"),
    "fit-risk-closed": fit_and_apply("--target-risk 0.15 --calibrator none --score msp --confidence 0.9"),
    "fit-sgr": fit_and_apply("--target-risk 0.15 --method sgr --calibrator temperature --score margin"),
    "fit-empirical": fit_and_apply("--target-risk 0.1 --method empirical"),
    "fit-coverage": fit_and_apply("--target-coverage 0.7"),
    "fit-by-class": fit_and_apply("--target-risk 0.2 --by-class"),
    "fit-by-group": fit_and_apply("--target-risk 0.15 --group site"),
    "fit-precision": fit_and_apply("--promise precision=cat:0.8 --promise precision=owl:0.75"),
    "fit-recall": fit_and_apply("--promise recall=fox:0.85"),
    "fit-cost": fit_and_apply("--costs costs.csv --target-cost 0.25 --abstain-cost 0.8"),
    "fit-expected-risk": fit_and_apply("--promise expected-risk:0.05"),
    "fit-normalised": fit_and_apply("--target-risk 0.15 --score normalised_max_logit --calibrator vector"),
    "fit-sets-lac": fit_and_apply("--target-risk 0.15 --sets 0.9"),
    "fit-sets-aps": fit_and_apply("--target-risk 0.15 --sets 0.9 --set-method aps --set-randomised"),
    "fit-sets-raps": fit_and_apply("--target-risk 0.15 --sets 0.9 --set-method raps"),
    "fit-sets-by-class": fit_and_apply("--target-risk 0.15 --sets 0.9 --set-method class-conditional"),
    "fit-probabilities": fit_and_apply(
        f"--target-risk 0.02 --calibrator isotonic {RARE}", "rare_val.csv", f"rare_test.csv {RARE}"
    ),
    "fit-rare-recall": fit_and_apply(f"--promise recall=1:0.8 {RARE}", "rare_val.csv", f"rare_test.csv {RARE}"),
    "fit-segmentation": fit_and_apply("--target-risk 0.2", "val_masks.npz", "test_masks.npz", "decisions.npz"),
    "check": Case((
        "fit val.npz --target-risk 0.1 -o policy.json",
        "check test.npz --require 'ece <= 3%' --require 'accuracy >= 0.7' --require 'aurc <= 0.2'",
        "check test.npz --require 'risk@0.5 <= 5%' --require 'coverage@0.05 >= 0.2' --by-group site",
        "check test.npz --require 'ece no worse' --require 'accuracy no worse by 1%' --baseline other.npz",
        "check test.npz --policy policy.json --require 'policy.risk <= 10%' --require 'policy.coverage >= 0.3'",
    ), entries={0: ()}),
    "monitor": Case((
        "fit val.npz --target-risk 0.1 -o policy.json",
        "monitor policy.json week1.npz --state watch.json",
        "monitor policy.json week2.npz week3.npz --state watch.json",
        "monitor policy.json --state watch.json",
        "monitor policy.json week1.npz week3.npz --by-group site --alpha 0.01",
    ), entries={0: ()}),
    "export": Case((
        "fit val.npz --target-risk 0.1 --sets 0.9 -o policy.json",
        "export --policy policy.json --logits-only -o policy.onnx",
        "export --policy policy.json --onnx model.onnx --inputs features.npy -o served.onnx",
    ), ("policy.onnx", "served.onnx"), entries={0: ()}),
    "lens": Case((
        "lens --losses ce,ls,mbls,acls,lr,focal:gamma=2 --logits 6,3,1,0 --label 1 -o none",
        "lens --predictions test.npz --losses mbls,acls:margin=4",
    )),
    "train": Case((
        "train digits.toml --loss ls --set loss.alpha=0.1 --seed 3 -o run",
        "predict run -o predicted.npz",
    ), ("predicted.npz",), slow=True),
    "compare": Case(
        ("compare digits.toml --losses ce,ls:alpha=0.2 --seeds 3 -o out",), ("out/results.csv",), slow=True
    ),
    "paper-als": paper("als.table1", "table1", "als_imagenet", ("hard", "als, beta=1"), (1000, IMAGENET)),
    "paper-acls": paper("acls.table3", "table3", "acls_cifar10_resnet50", ("ce", "ls", "acls"), (10, CIFAR)),
    "paper-mbls": paper("mbls.table1", "table1", "mbls_tiny_imagenet_resnet50", ("ce", "ls"), (200, TINY)),
    "paper-lr": paper("lr.table1", "table1", "lr_mnist_mlp", ("ce",), (NAMES["mnist"], MNIST)),
    "paper-sc": paper("sc.fig15", "fig15-numbers", "sc_cifar100_densenet", ("ce", "ls, alpha=0.2"), (100, CIFAR)),
}  # fmt: skip
