"""Whether the oldest and the newest versions that pyproject.toml allows work: every command once, in a new environment.

    ./dev versions                  both; minutes, and gigabytes where PyTorch comes with CUDA
    ./dev versions --only newest
    ./dev versions --core           without the extras: the measuring half alone

Environments are made in build/versions and kept for the next time; --fresh makes them anew. The table goes to
docs/versions.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from benchmarks._harness import say

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "versions.md"
SHOWN = ("numpy", "scipy", "pyarrow", "pydantic", "typer", "torch", "torchvision", "torchmetrics",
         "lightning-fabric", "onnx", "onnxruntime", "onnxscript", "timm")  # fmt: skip

RECIPE = """
[data]
layout = "digits"
val = "val"
[model]
name = "mlp"
input_size = [3, 8, 8]
hidden = [16]
[loss]
name = "acls"
[optimiser]
rate = 0.1
[training]
epochs = 1
batch_size = 256
"""

FILES = """
import numpy as np
from calibrant import Predictions
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 2000)
logits = rng.normal(size=(2000, 3)) + 3 * np.eye(3)[labels]
Predictions.from_logits(logits[:1000], labels[:1000]).save("val.npz")
Predictions.from_logits(logits[1000:], labels[1000:]).save("test.parquet")
"""

CORE = [
    "calibrant --help",
    "calibrant audit test.parquet --val val.npz -o report.html",
    "calibrant fit val.npz --target-risk 0.1 -o policy.json",
    "calibrant apply policy.json test.parquet -o answers.csv",
    "calibrant audit test.parquet --policy policy.json -o none --json",
]
ALL = [
    "calibrant export --logits-only --policy policy.json -o head.onnx",
    "calibrant methods",
    "calibrant lens --losses ls,acls -o lens.png",
    "calibrant data layouts",
    "calibrant train recipe.toml -o run",
    "calibrant predict run --split test -o predictions.npz",
    "calibrant fit run/val.npz --target-risk 0.2 -o run.json",
    "calibrant export --run run --policy run.json -o model.onnx",
    "calibrant compare recipe.toml --losses ce,ls --seeds 2 -o sweep",
    "calibrant demo --quick -o demo",
]


def requirements(extras: list[str]) -> list[str]:
    """What the project and some extras ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [one for one in wanted if not one.startswith("calibrant")]


def oldest(wanted: list[str]) -> list[str]:
    """The same, each at its lower bound.

    >>> oldest(["numpy>=1.26", "ray[tune]>=2.40"])
    ['numpy==1.26.*', 'ray[tune]==2.40.*']
    """
    return [re.sub(r">=([0-9.]+).*", lambda m: f"=={m[1]}.*", one) for one in wanted]


def environment(name: str, extras: list[str], *, fresh: bool) -> Path:
    """The Python of an environment with the oldest or the newest versions."""
    place = ROOT / "build" / "versions" / ("-".join([name, *extras]) or name)
    python = place / "bin" / "python"
    if fresh or not (place / "done").exists():
        say(f"{name}: installing")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        wanted = requirements(extras)
        versions = oldest(wanted) if name == "oldest" else wanted
        subprocess.run([str(python), "-m", "pip", "install", "-q", *versions], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", str(ROOT)], check=True)
        (place / "done").touch()
    else:
        command = [str(python), "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(ROOT)]
        subprocess.run(command, check=True)
    return python


def tried(python: Path, commands: list[str]) -> dict[str, str]:
    """Every command by what became of it: "ok", or its exit code and last line."""
    folder = python.parent.parent / "work"
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    folder.mkdir()
    (folder / "recipe.toml").write_text(RECIPE)
    subprocess.run([str(python), "-c", FILES], cwd=folder, check=True)
    found = {}
    for command in commands:
        words = [str(python.parent / "calibrant"), *command.split()[1:]]
        result = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        last = (result.stderr.strip().splitlines() or [""])[-1]
        found[command] = "ok" if result.returncode == 0 else f"{result.returncode}: {last[:160]}"
        say(f"  {command}: {found[command]}")
    return found


def versions(python: Path) -> dict[str, str]:
    """Of the packages that are shown, those that are installed."""
    result = subprocess.run([str(python), "-m", "pip", "list", "--format", "json"], capture_output=True, check=True)
    found = {one["name"].lower().replace("_", "-"): one["version"] for one in json.loads(result.stdout)}
    return {name: found[name] for name in SHOWN if name in found}


def page(found: dict[str, dict[str, str]], results: dict[str, dict[str, str]]) -> str:
    """The page of the documentation."""
    names = list(found)
    lines = [
        "<!-- Written by ./dev versions; edit benchmarks/versions.py instead. -->",
        "# Versions",
        "",
        "Each command below was run with the oldest and with the newest versions that `pyproject.toml` allows, in new",
        f"environments (Python {sys.version_info[0]}.{sys.version_info[1]}, Linux). Repeat with `./dev versions`.",
        "",
        "| package | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    lines += [
        f"| {package} | " + " | ".join(found[name].get(package, "-") for name in names) + " |"
        for package in SHOWN
        if any(package in found[name] for name in names)
    ]
    lines += ["", "| command | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    commands = list(dict.fromkeys(command for name in names for command in results[name]))
    for command in commands:
        lines.append(f"| `{command}` | " + " | ".join(results[name].get(command, "-") for name in names) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev versions", description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("oldest", "newest"))
    parser.add_argument("--core", action="store_true", help="the measuring half alone; no page is written")
    parser.add_argument("--fresh", action="store_true", help="make the environments anew")
    args = parser.parse_args()
    extras = [] if args.core else ["train", "export", "timm"]
    found, results = {}, {}
    for name in [args.only] if args.only else ["oldest", "newest"]:
        python = environment(name, extras, fresh=args.fresh)
        found[name] = versions(python)
        say(f"{name}: {found[name]}")
        results[name] = tried(python, CORE if args.core else CORE + ALL)
    if not args.core and not args.only:
        PAGE.write_text(page(found, results), encoding="utf-8")
        say(f"wrote {PAGE.relative_to(ROOT)}")
    sys.exit(any(value != "ok" for one in results.values() for value in one.values()))


if __name__ == "__main__":
    main()
