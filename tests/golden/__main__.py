"""`./dev golden`: run the golden cases and print what differs; `--write` records the new outcomes."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.golden import runs
from tests.golden.cases import CASES


def main() -> int:
    """1 if a case differs and is not recorded anew."""
    parser = argparse.ArgumentParser(prog="./dev golden", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"all if left out: {', '.join(CASES)}")
    parser.add_argument("--write", action="store_true", help="record the outcomes, after printing the differences")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(CASES))
    if unknown:
        parser.error(f"unknown case {unknown[0]}")
    changed = 0
    for name in arguments.names or CASES:
        case = CASES[name]
        with tempfile.TemporaryDirectory(prefix="calibrant-golden-") as folder:
            outcome = runs.run(case, Path(folder))
        recorded = runs.read(name) if (runs.EXPECTED / f"{name}.json").is_file() else None
        differences = (
            ["not recorded yet"] if recorded is None else list(runs.compare(recorded, outcome, trained=case.slow))
        )
        for line in differences:
            print(f"{name}: {line.lstrip('.')}")
        changed += bool(differences)
        if arguments.write and differences:
            runs.write(name, outcome)
    if arguments.write and not arguments.names:
        for path in runs.EXPECTED.glob("*.json"):
            if path.stem not in CASES:
                print(f"{path.stem}: no longer a case")
                path.unlink()
    print(
        f"{changed} of {len(arguments.names or CASES)} cases differ" + (", and are recorded" if arguments.write else "")
    )
    return int(changed > 0 and not arguments.write)


if __name__ == "__main__":
    sys.exit(main())
