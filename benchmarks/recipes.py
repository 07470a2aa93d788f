"""The small recipes, run whole on real data: one run each as the file says, and one of the method it is compared with.

    ./dev bench recipes --data DIR          every recipe whose data lies in a folder of DIR, and scenes
    ./dev bench recipes --data DIR --only camvid scenes
    ./dev bench recipes --page              write docs/recipes.md from the results

DIR holds fashion-mnist, cifar-10, tiny-imagenet, 20news, pacs and camvid, each as `calibrant data inspect` reads it; a
folder that is missing is passed over. A run that is finished is not computed again, one that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scipy.special import softmax

from benchmarks import _harness as harness
from benchmarks._harness import say
from benchmarks._speed_metrics import machine, table
from calibrant import Predictions
from calibrant._files import written_aside
from calibrant.metrics import context_reliance
from calibrant.training import load, train

RUNS = Path("build/recipes")
RESULTS = Path("benchmarks/results/recipes.json")
PAGE = Path("docs/recipes.md")
SHOWN = ("accuracy", "nll", "ece", "aurc", "mean_confidence")


class Small(NamedTuple):
    """A recipe, the folder of its data, and what it is laid beside: title to overrides."""

    folder: str
    methods: Mapping[str, tuple[str, ...]]


SMALL = {
    "scenes": Small("", {"als": (), "hard": ("targets.name=hard",)}),
    "fashion_mnist": Small("fashion-mnist", {"lr": (), "ce": ('loss={name="ce"}',)}),
    "cifar10_resnet20": Small("cifar-10", {"ls": (), "ce": ('loss={name="ce"}',)}),
    "tiny_imagenet_50": Small("tiny-imagenet", {"als": (), "hard": ("targets.name=hard",)}),
    "newsgroups_gpcn": Small("20news", {"mbls": (), "ce": ('loss={name="ce"}',)}),
    "pacs_photo_to_sketch": Small("pacs", {"ls": (), "ce": ('loss={name="ce"}',)}),
    "camvid": Small("camvid", {"acls": (), "ce": ('loss={name="ce", ignore_index=11}',)}),
}


def run(name: str, method: str, overrides: tuple[str, ...], data: str | None, seed: int) -> dict[str, Any]:
    """One run, whole: from its beginning, from where it stopped, or from disk."""
    recipe = load(f"small/{name}", [*overrides, f"seed={seed}"])
    folder = RUNS / f"{name}-{method}-{recipe.key}"
    title = f"{name}, {method}"

    def listen(event: str, numbers: Mapping[str, Any]) -> None:
        if event == "step":
            say(f"{title}: step {numbers['step']}", passing=True)
        elif event == "epoch":
            say(f"{title}: epoch {numbers['epoch']}")

    start = time.perf_counter()
    result = train(recipe, folder, data=data, resume=True, event_log=listen)
    say(f"{title}: {time.perf_counter() - start:.0f} s")
    found: dict[str, Any] = {
        "recipe": name, "method": method, "title": recipe.title, "seed": seed, "steps": result["steps"],
        "sets": {which: {key: numbers[key] for key in SHOWN} for which, numbers in result["sets"].items()},
    }  # fmt: skip
    if "context" in result["sets"]:
        seen = Predictions.open(folder / "context.npz")
        correct = seen.logits.argmax(1) == seen.labels
        found["context"] = context_reliance(softmax(seen.logits, axis=1).max(1), correct)._asdict()
    samples = {which: len(Predictions.open(folder / f"{which}.npz")) for which in result["sets"]}
    return found | {"network": recipe.model.name, "samples": samples}


HEADER = """<!-- Written by ./dev bench recipes --page; edit benchmarks/recipes.py instead. -->

# The small recipes, run

{shown} of the {all} small recipes of classifiers, each as it stands and beside the method it is
compared with; the data sets of the others were not at hand. There is one run of each with seed {seed}, so a difference
here is that of two runs, not yet of two methods. Run them again, or the others, with `./dev bench recipes --data DIR`.
Run on: {machine}.
"""

#: What a reader of a table has to know.
NOTES = {
    "scenes": """\
`als` is adaptive label smoothing with beta = 1: the less of the crop an object fills, the closer its target is to
uniform. Here objects fill half of a crop on average, so the confidence stays far below the accuracy, which the ECE
counts. `hard` is cross-entropy with the labels as they are.
""",
    "fashion_mnist": "`lr` is label relaxation, `ce` is cross-entropy.\n",
}


def page(results: list[dict[str, Any]], environment: dict[str, Any], seed: int) -> str:
    """What docs/recipes.md says."""
    shown = len({r["recipe"] for r in results})
    parts = [HEADER.format(shown=shown, all=len(SMALL), seed=seed, machine=machine(environment))]
    for name in SMALL:
        rows = [r for r in results if r["recipe"] == name]
        if not rows:
            continue
        parts.append(f"## {rows[0]['title']}\n\n`small/{name}`, network `{rows[0]['network']}`.\n")
        if name in NOTES:
            parts.append(NOTES[name])
        numbers = [
            (which, r["method"], str(r["samples"][which]), *(f"{r['sets'][which][key]:.4f}" for key in SHOWN))
            for which in rows[0]["sets"]
            for r in rows
        ]
        parts.append(table(("set", "method", "samples", *SHOWN), numbers))
        if "context" in rows[0]:
            columns = list(rows[0]["context"])
            parts.append("Without objects, as ALS's Table 1 has it:\n")
            rates = [[r["method"], *(f"{r['context'][column]:.4f}" for column in columns)] for r in rows]
            parts.append(table(["method", *columns], rates))
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench recipes", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="a folder with a folder for each data set")
    parser.add_argument("--only", nargs="+", choices=list(SMALL), default=list(SMALL))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", action="store_true", help="write docs/recipes.md from the last results")
    args = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": [], "seed": args.seed}
    if not args.page:
        for name in args.only:
            small = SMALL[name]
            if small.folder and (args.data is None or not (args.data / small.folder).is_dir()):
                say(f"{name} is passed over: there is no {small.folder} in {args.data}")
                continue
            for method, overrides in small.methods.items():
                data = str(args.data / small.folder) if small.folder else None
                found = run(name, method, overrides, data, args.seed)
                known["runs"] = [r for r in known["runs"] if (r["recipe"], r["method"]) != (name, method)] + [found]
                known |= {"seed": args.seed, "environment": harness.environment()}
                harness.write_json(RESULTS, known)
    with written_aside(PAGE) as aside:
        aside.write_text(page(known["runs"], known["environment"], known["seed"]), encoding="utf-8")
    print(f"{PAGE} is written.")


if __name__ == "__main__":
    main()
