"""Does the guarantee hold? Thresholds fitted on thousands of drawn data sets, against the risk that is known.

    ./dev bench guarantee                    2000 draws of every setting
    ./dev bench guarantee --draws 5000 --seed 7
    ./dev bench guarantee --adversary        look for the population on which the promise is broken most often
    ./dev bench guarantee --power            whole policies on few and on tied samples, beside a plain grid
    ./dev bench guarantee --page             write docs/guarantee.md from the last results of the first two

Scores are uniform on (0, 1), and a prediction is wrong with a known probability that depends on its score; so the true
risk of every threshold is an integral. "violated" is the share of draws whose threshold has a true risk above the
target; it may be 1 - confidence, and three standard errors more by chance. "power" is the mean coverage of the
thresholds over that of a clairvoyant, who knows the risk, chooses the one threshold that is best to test, and tests it
once on all samples. "planned" is what a policy does: a fifth of the samples decides what to test, the others are
tested.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from benchmarks import _harness as harness
from benchmarks import adversary
from benchmarks._harness import say
from benchmarks._markdown import table
from calibrant.base.files import written_aside
from calibrant.promises.bounds import allowed_errors
from calibrant.promises.split import FEWEST_FOR_SCORE
from calibrant.promises.thresholds import curve_of, threshold_on

RESULTS = Path("benchmarks/results/guarantee.json")
ADVERSARY = Path("benchmarks/results/adversary.json")
PAGE = Path("docs/guarantee.md")
PROMISES = Path("benchmarks/results/promises.json")
POWER = Path("benchmarks/results/power.json")
PROMISES_PAGE = Path("docs/promises.md")
POINTS = 1 << 16  # of the integrals

Doubles = npt.NDArray[np.float64]
Method = Callable[[Doubles, npt.NDArray[np.bool_], float, float], float]


def by(name: Literal["fixed-sequence", "sgr", "empirical"]) -> Method:
    """One of the library's methods, on all samples."""

    def find(score: Doubles, correct: npt.NDArray[np.bool_], risk: float, confidence: float) -> float:
        if name == "empirical":
            return threshold_on(curve_of(score, correct), risk, confidence, name).value
        return adversary.loosest(score, correct, risk, 1 - confidence, None, name)

    return find


def as_a_policy(score: Doubles, correct: npt.NDArray[np.bool_], risk: float, confidence: float) -> float:
    """The first samples plan the tests, the rest is tested; draws are independent, so any part will do."""
    if len(score) < FEWEST_FOR_SCORE:
        return adversary.unplanned(score, correct, risk, 1 - confidence)
    return adversary.planned(score, correct, risk, 1 - confidence)


METHODS: dict[str, Method] = {
    "fixed-sequence": by("fixed-sequence"),
    "sgr": by("sgr"),
    "planned": as_a_policy,
    "empirical": by("empirical"),
}

#: How often a prediction with score u is wrong, given the target risk.
SHAPES: dict[str, Callable[[Doubles, float], Doubles]] = {
    "rising": lambda u, r: np.clip(0.2 * r + 8 * r * (1 - u) ** 2, 0, 1),  # as good classifiers have it
    "flat": lambda u, r: np.full_like(u, 1.002 * r),  # the worst case: no threshold holds, all nearly do
    "edge": lambda u, r: np.where(u > 0.4, r * 1.0005, np.minimum(1, 5 * r)),  # just too high, then far too high
    "wavy": lambda u, r: r * (1 + 0.9 * np.sin(40 * u)),  # crosses the target again and again
}

#: What becomes of the scores: as they are, rounded to ten values, or a third of them at the top value.
TIES: dict[str, Callable[[Doubles], Doubles]] = {
    "continuous": lambda u: u,
    "ten values": lambda u: np.floor(10 * u) / 10,
    "saturated": lambda u: np.minimum(u, 2 / 3),
}


SAMPLES = (300, 1000, 5000)
ASKED = ((0.05, 0.95), (0.1, 0.9))  # risk and confidence


@dataclass(frozen=True)
class Setting:
    """One population, and what is asked of it."""

    shape: str
    ties: str
    samples: int
    risk: float
    confidence: float

    def draw(self, rng: np.random.Generator) -> tuple[Doubles, npt.NDArray[np.bool_]]:
        """Scores and correctness of a data set."""
        u = rng.random(self.samples)
        wrong = rng.random(self.samples) < SHAPES[self.shape](u, self.risk)
        return TIES[self.ties](u), ~wrong

    def population(self) -> tuple[Doubles, Doubles, Doubles]:
        """Scores, falling, and for "accept from here up" the coverage and the risk."""
        u = 1 - (np.arange(POINTS) + 0.5) / POINTS
        score = TIES[self.ties](u)
        wrong = np.cumsum(SHAPES[self.shape](u, self.risk))
        last = np.append(np.flatnonzero(np.diff(score)), POINTS - 1)  # of a tie, the end counts
        return score[last], (last + 1) / POINTS, wrong[last] / (last + 1)


@dataclass(frozen=True)
class Outcome:
    """What a method did over all draws of a setting."""

    draws: int
    violated: float
    coverage: float
    abstained: float

    def holds(self, confidence: float) -> bool:
        """Whether violations are at most what was promised, and three standard errors."""
        allowed = 1 - confidence
        return self.violated <= allowed + 3 * math.sqrt(allowed * (1 - allowed) / self.draws)


def simulate(setting: Setting, methods: Mapping[str, Method], draws: int, seed: int) -> dict[str, Outcome]:
    """Every method on the same draws."""
    rng = np.random.default_rng(seed)
    score, coverage, risk = setting.population()
    found: dict[str, list[tuple[float, bool]]] = {name: [] for name in methods}
    for _ in range(draws):
        data = setting.draw(rng)
        for name, method in methods.items():
            value = method(*data, setting.risk, setting.confidence)
            # The last accepted point of the population; a threshold above all of them accepts (almost) nothing.
            at = int(np.searchsorted(-score, -value, side="right")) - 1
            found[name].append((coverage[at], risk[at] > setting.risk) if at >= 0 else (0.0, False))
    made = {}
    for name, rows in found.items():
        covered, broken = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
        made[name] = Outcome(draws, float(broken.mean()), float(covered.mean()), float((covered == 0).mean()))
    return made


def oracle(setting: Setting) -> float:
    """The largest coverage whose true risk is at most the target."""
    _, coverage, risk = setting.population()
    fits = np.flatnonzero(risk <= setting.risk)
    return float(coverage[fits[-1]]) if len(fits) else 0.0


def clairvoyant(setting: Setting, steps: int = 200) -> float:
    """The mean coverage of whoever knows the best threshold, and tests it once on all samples: an exact sum."""
    _, coverage, risk = setting.population()
    accepted = np.arange(setting.samples + 1)
    limit = allowed_errors(accepted, setting.risk, 1 - setting.confidence)

    def mean_coverage(at: int) -> float:
        passes = np.where(limit >= 0, binom.cdf(limit, accepted, risk[at]), 0.0)
        return float(coverage[at] * (binom.pmf(accepted, setting.samples, coverage[at]) * passes).sum())

    return max(mean_coverage(at) for at in np.unique(np.linspace(0, len(coverage) - 1, steps).astype(int)).tolist())


def settings() -> Iterator[Setting]:
    """Every combination."""
    for shape, ties, samples, (risk, confidence) in product(SHAPES, TIES, SAMPLES, ASKED):
        yield Setting(shape, ties, samples, risk, confidence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--adversary", action="store_true")
    parser.add_argument("--promises", action="store_true", help="of classes, recall, costs and expected risks")
    parser.add_argument("--power", action="store_true", help="of whole policies, on few and on tied samples")
    parser.add_argument("--data", type=Path, help="with --power: a folder of real logits, too")
    parser.add_argument("--rounds", type=int, default=100, help="populations of the adversary, new and changed each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--adversary-output", type=Path, default=ADVERSARY)
    parser.add_argument("--power-output", type=Path, default=POWER)
    parser.add_argument("--promises-output", type=Path, default=PROMISES)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if arguments.promises:
        simulate_promises(arguments)
        return
    if arguments.power:
        simulate_power(arguments)
        return
    if arguments.page:
        results, worst = (
            json.loads(file.read_text(encoding="utf-8")) for file in (arguments.output, arguments.adversary_output)
        )
        with written_aside(PAGE) as aside:
            aside.write_text(page(results, worst), encoding="utf-8")
        return
    if arguments.adversary:
        worst = adversary.search_worst(arguments.rounds, arguments.draws, arguments.seed)
        harness.write_json(arguments.adversary_output, worst)
        return
    rows: list[dict[str, Any]] = []
    every = [(setting, arguments.draws, arguments.seed + number) for number, setting in enumerate(settings())]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for number, found in enumerate(pool.imap(_rows, every)):
            say(f"setting {number + 1} of {len(every)}", passing=True)
            rows += found
    harness.write_json(arguments.output, {"draws": arguments.draws, "seed": arguments.seed, "rows": rows})
    harness.print_table(
        [
            "shape",
            "scores",
            "samples",
            "risk",
            "confidence",
            "oracle",
            "clairvoyant",
            *(f"{name}: violated, covers" for name in METHODS),
        ],
        [_row(rows[i : i + len(METHODS)]) for i in range(0, len(rows), len(METHODS))],
    )
    for name in METHODS:
        own = [row for row in rows if row["method"] == name]
        power = np.mean([row["coverage"] / row["clairvoyant"] for row in own if row["shape"] == "rising"])
        broken = [row for row in own if not row["holds"]]
        worst = max(own, key=lambda row: row["violated"] - (1 - row["confidence"]))
        say(
            f"{name}: {len(broken)} of {len(own)} settings violated beyond chance; most {worst['violated']:.2%} where "
            f"{1 - worst['confidence']:.0%} is allowed; power {power:.2f} of the clairvoyant's coverage"
        )


def simulate_promises(arguments: argparse.Namespace) -> None:
    """The other promises, or their page."""
    from benchmarks import _promise_simulation as simulation  # here: it takes its populations from this module

    if arguments.page:
        results = json.loads(arguments.promises_output.read_text(encoding="utf-8"))
        with written_aside(PROMISES_PAGE) as aside:
            aside.write_text(simulation.page(results), encoding="utf-8")
        return
    every, rows = list(simulation.settings()), []
    for number, setting in enumerate(every):
        say(f"setting {number + 1} of {len(every)}", passing=True)
        rows.append(simulation.simulate(setting, arguments.draws, arguments.seed + number))
    harness.write_json(arguments.promises_output, {"draws": arguments.draws, "seed": arguments.seed, "rows": rows})
    broken = [row for row in rows if not row["holds"]]
    say(f"{len(broken)} of {len(rows)} settings violated beyond chance")


def simulate_power(arguments: argparse.Namespace) -> None:
    """Whole policies on few and on tied samples, beside a threshold on all samples and a plain grid."""
    from benchmarks import _power_simulation as simulation  # here: it takes its populations from this module

    every = [
        (setting, arguments.draws, arguments.seed + number) for number, setting in enumerate(simulation.settings())
    ]
    rows: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for number, row in enumerate(pool.imap(simulation.simulate_row, every)):
            say(f"setting {number + 1} of {len(every)}", passing=True)
            rows.append(row)
    if arguments.data is not None:
        rows += simulation.file_rows(arguments.data, arguments.draws, arguments.seed)
    harness.write_json(arguments.power_output, {"draws": arguments.draws, "seed": arguments.seed, "rows": rows})
    print(simulation.tables(rows))


def page(results: dict[str, Any], attack: dict[str, Any]) -> str:
    """The results as a page of the documentation."""
    rows, guaranteed = results["rows"], [name for name in METHODS if name != "empirical"]
    violated = []
    for shape, ties, (risk, confidence) in product(SHAPES, TIES, ASKED):
        held = [
            r for r in rows if (r["shape"], r["ties"], r["risk"], r["confidence"]) == (shape, ties, risk, confidence)
        ]
        worst = {name: max(r["violated"] for r in held if r["method"] == name) for name in METHODS}
        violated.append([shape, ties, f"{risk:.0%}", f"{1 - confidence:.0%}", *(f"{worst[n]:.1%}" for n in METHODS)])
    power = []
    for ties, samples, (risk, confidence) in product(TIES, SAMPLES, ASKED):
        held = [r for r in rows if (r["shape"], r["ties"], r["samples"], r["risk"]) == ("rising", ties, samples, risk)]
        share = {r["method"]: r["coverage"] / r["clairvoyant"] for r in held}
        power.append(
            [ties, f"{samples:,}", f"{risk:.0%}", f"{confidence:.0%}"]
            + [f"{held[0][name]:.1%}" for name in ("oracle", "clairvoyant")]
            + [f"{share[name]:.2f}" for name in guaranteed]
        )
    broken = sum(not r["holds"] for r in rows if r["method"] in guaranteed)
    return PAGE_TEXT.format(
        draws=results["draws"],
        seed=results["seed"],
        settings=len(rows) // len(METHODS),
        broken=broken,
        rounds=2 * attack["rounds"],
        worst_draws=attack["draws"],
        worst=table(WORST_HEAD, [_worst_row(row) for row in attack["worst"]]),
        tested=sum(r["method"] in guaranteed for r in rows),
        violated=table(["risk by score", "scores", "target", "allowed", *METHODS], violated),
        power=table(
            ["scores", "samples", "target", "confidence", "oracle covers", "clairvoyant covers", *guaranteed], power
        ),
    )


WORST_HEAD = [
    "method",
    "samples",
    "target",
    "allowed",
    "broken",
    "95% interval",
    "the population, from high scores to low",
]


def _worst_row(row: dict[str, Any]) -> list[str]:
    asked = [f"{row['samples']:,}", f"{row['risk']:.0%}", f"{1 - row['confidence']:.0%}"]
    interval = f"{row['low']:.1%} to {row['high']:.1%}"
    return [row["method"], *asked, f"{row['broken']:.1%}", interval, adversary.words(row)]


PAGE_TEXT = """\
<!-- Written by ./dev bench guarantee --page; edit benchmarks/guarantee.py instead. -->

# Does the guarantee hold?

For each of {settings} settings, {draws:,} data sets were drawn (seed {seed}). A threshold was fitted on each of them,
and its true risk, which is known, was compared with the target. Repeat with `./dev bench guarantee`, with another
`--seed` if you like. The [guide to repairing and abstaining](repair.md) explains what is promised, and why the promise
holds; [promises.md](promises.md) has the same for promises about classes, recall, costs and an expected risk.

A promise may be broken with probability 1 - confidence. In {broken} of {tested} cases, each a setting and a method that
makes a promise, it was broken more often than that by over three standard errors. `planned` is what a policy does: a
fifth of the samples serves to plan the tests, which are made on the rest; fewer than 400 samples are all tested, in the
order of `fixed-sequence`, which tests ranks of all samples from a quarter of them on, as `threshold_for_risk`
does. `empirical` takes the largest coverage that meets the target on the samples themselves; it promises nothing, and
its column shows why that is not enough.

## Promises broken

The share of the data sets for which the promise was broken: the largest of the shares for 300, 1000 and 5000 samples.
The risk depends on the score in one of four ways. "rising": it rises as the score falls, as with good classifiers;
"flat": it is just above the target everywhere, so that no threshold holds and all nearly do, the worst case; "edge": it
is just above the target for high scores and far above it for low ones; "wavy": it crosses the target again and again.
Scores are continuous, rounded to ten values, or saturated: a third of them have the top value.

{violated}

## The worst population that a search could find

A program looks for a population that breaks the promise (`./dev bench guarantee --adversary`): up to eight parts, each
with its share, its error rate, and scores that are tied or not, in one group or two; {rounds} populations for each
method, half of them drawn at random and half of them changes of the worst so far. The worst of many noisy numbers is
partly luck, so the one that remained was drawn {worst_draws:,} times afresh. Its share of broken promises:

{worst}

## Power

Mean coverage as a multiple of the clairvoyant's, who knows the risk of every threshold, chooses the one that is best to
test, and tests it once on all samples. Whoever does not know the risk, but goes on to the next threshold after a test
that passed, can cover more than that. The oracle's coverage is the largest whose true risk is at most the target; no
number of samples covers more. The risk is "rising".

{power}
"""


def _rows(job: tuple[Setting, int, int]) -> list[dict[str, Any]]:
    setting, draws, seed = job
    best, single = oracle(setting), clairvoyant(setting)
    found = simulate(setting, METHODS, draws, seed)
    return [
        {
            **vars(setting),
            "method": name,
            "oracle": best,
            "clairvoyant": single,
            **vars(one),
            "holds": one.holds(setting.confidence),
        }
        for name, one in found.items()
    ]


def _row(rows: list[dict[str, Any]]) -> list[str]:
    first = rows[0]
    head = [first["shape"], first["ties"], str(first["samples"]), f"{first['risk']:.0%}", f"{first['confidence']:.0%}"]
    cells = [f"{row['violated']:.1%}{'' if row['holds'] else '!'}, {row['coverage']:.1%}" for row in rows]
    return [*head, f"{first['oracle']:.1%}", f"{first['clairvoyant']:.1%}", *cells]


if __name__ == "__main__":
    main()
