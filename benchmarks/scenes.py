"""What the papers found, looked for again on scenes: five seeds, four methods, a small network, minutes.

    ./dev bench scenes                    seeds 0 to 4; what is finished is not computed again
    ./dev bench scenes --seeds 0 1 2      other seeds
    ./dev bench scenes --quick            a fast trial that proves nothing
    ./dev bench scenes --page             write docs/scenes.md from the last results

Cross-entropy (ce), label smoothing (ls), adaptive label smoothing (als) and the same with 15% of the pictures shown
without their objects (als+context) train the same network on the same crops in the same order. A claim is a difference
per seed with an expected sign: it holds when the 95% t-interval of its mean lies on that side of 0, does not hold when
it lies on the other side, and is within noise otherwise. Settings were chosen on seed 100, which is not reported.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from benchmarks import _harness as harness
from benchmarks._harness import say
from benchmarks._markdown import table
from calibrant.base.files import written_aside
from calibrant.data.boxes import Boxes, objectness
from calibrant.data.scenes import CLASSES, Scenes, draw, true_calibration_error, true_error
from calibrant.losses import SoftTargetCrossEntropy, get
from calibrant.metrics import accuracy, aurc, ece, mean_confidence, overconfidence
from calibrant.models import build
from calibrant.posthoc import LogitNorm
from calibrant.targets import adaptive_targets

RESULTS = Path("benchmarks/results/scenes.json")
PAGE = Path("docs/scenes.md")
METHODS = ("ce", "ls", "als", "als+context")
#: Share of the pictures that "als+context" sees with every object covered, with a uniform target (ALS, section 4.1).
CONTEXT_RATE = 0.15
SETS = ("test", "mixed", "texture", "sketch")
Crops = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Settings:
    """Data and recipe, the same for every method."""

    train: int = 1500
    val: int = 3000
    test: int = 8000
    context: float = 0.6
    ambiguous: float = 0.3
    epochs: int = 80
    batch: int = 32
    rate: float = 0.1
    decay: float = 1e-3
    smallest_crop: float = 0.8
    alpha: float = 0.3
    width: int = 24

    def draw(self, split: str, seed: int, shift: Any = None) -> Scenes:
        count = getattr(self, split)
        return draw(split, samples=count, seed=seed, shift=shift, context=self.context, ambiguous=self.ambiguous)


QUICK = replace(Settings(), train=256, val=256, test=512, epochs=2)


def network(settings: Settings) -> nn.Module:
    """Four convolutions with batch norm, some 140,000 weights."""
    small = build("small_cnn", num_classes=len(CLASSES), width=settings.width)
    return small.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class Pixels:
    """Pictures as the network takes them: less the training set's mean pixel, by a common scale."""

    def __init__(self, train: Scenes):
        self.mean = train.images.mean(axis=(0, 1, 2))

    def __call__(self, images: np.ndarray) -> Tensor:
        x = torch.from_numpy(((images - self.mean) / 64).astype(np.float32)).permute(0, 3, 1, 2)
        return x.contiguous(memory_format=torch.channels_last)

    def context_only(self, drawn: Scenes) -> Tensor:
        """The pictures with every box filled with the mean pixel."""
        images = drawn.images.astype(np.float32)
        owner = np.repeat(np.arange(len(images)), np.diff(drawn.offsets))
        for image, (x1, y1, x2, y2) in zip(owner, drawn.boxes, strict=True):
            images[image, y1:y2, x1:x2] = self.mean
        return self(images)


def random_crops(count: int, smallest: float, generator: torch.Generator) -> Crops:
    """x, y, width and height of random-resized crops, the picture from 0 to 1."""
    area, aspect, x, y = torch.rand((4, count), generator=generator)
    area = smallest + (1 - smallest) * area
    aspect = torch.exp((2 * aspect - 1) * math.log(4 / 3))
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    return x * (1 - width), y * (1 - height), width, height


def cut(images: Tensor, crops: Crops, mirrored: Tensor) -> Tensor:
    """The crops at the pictures' size, some mirrored."""
    x, y, width, height = crops
    map_ = torch.zeros(len(images), 2, 3)
    map_[:, 0, 0], map_[:, 1, 1] = torch.where(mirrored, -width, width), height
    map_[:, 0, 2], map_[:, 1, 2] = 2 * x + width - 1, 2 * y + height - 1
    grid = F.affine_grid(map_, list(images.shape), align_corners=False)
    seen = F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    return seen.contiguous(memory_format=torch.channels_last)


def objective(method: str, settings: Settings, drawn: Scenes) -> Callable[[Tensor, Tensor, Crops, Tensor], Tensor]:
    """The loss of a batch: logits, its rows of the training set, the crops they came from, and which were covered."""
    labels = torch.from_numpy(drawn.labels)
    if method in ("ce", "ls"):
        loss = get("ce") if method == "ce" else get("ls", alpha=settings.alpha)
        return lambda logits, rows, crops, covered: loss(logits, labels[rows])
    soft = SoftTargetCrossEntropy()
    size = drawn.images.shape[1]
    none = np.zeros(len(drawn.boxes), dtype=bool)
    boxes = Boxes(drawn.boxes.astype(np.float64), drawn.offsets, drawn.box_labels, none)

    def adaptive(logits: Tensor, rows: Tensor, crops: Crops, covered: Tensor) -> Tensor:
        x, y, width, height = (size * part.double() for part in crops)
        corners = torch.stack([x, y, x + width, y + height], dim=1).numpy()
        share = objectness(boxes.take(rows.numpy()), corners, [size, size])
        return soft(logits, adaptive_targets(labels[rows], share, len(CLASSES), context=covered))

    return adaptive


def train(method: str, settings: Settings, seed: int, drawn: Scenes, pixels: Pixels) -> nn.Module:
    """The network, trained; methods differ in the target and the loss alone, "+context" also in what is covered."""
    images = pixels(drawn.images)
    bare = pixels.context_only(drawn) if method.endswith("+context") else None
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model, loss = network(settings), objective(method, settings, drawn)
    steps = settings.epochs * (len(images) // settings.batch)
    optimiser = torch.optim.SGD(
        model.parameters(), settings.rate, momentum=0.9, weight_decay=settings.decay, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.rate, total_steps=steps, pct_start=0.15)
    for _ in range(settings.epochs):
        order = torch.randperm(len(images), generator=generator)
        for rows in order[: len(order) // settings.batch * settings.batch].view(-1, settings.batch):
            crops = random_crops(len(rows), settings.smallest_crop, generator)
            mirrored = torch.rand(len(rows), generator=generator) < 0.5
            seen, covered = images[rows], torch.zeros(len(rows), dtype=torch.bool)
            if bare is not None:
                covered = torch.rand(len(rows), generator=generator) < CONTEXT_RATE
                seen = torch.where(covered[:, None, None, None], bare[rows], seen)
            value = loss(model(cut(seen, crops, mirrored)), rows, crops, covered)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def logits_of(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([model(part) for part in images.split(500)]).double()


def measured(logits: Tensor, truth: tuple[np.ndarray, np.ndarray], norm: LogitNorm) -> dict[str, Any]:
    """Every number of one set, given labels and posterior; those "normed" rank by the normalised logit."""
    labels, posterior = truth
    confidence, predicted = (x.numpy() for x in logits.softmax(1).max(1))
    correct = predicted == labels
    return {
        "accuracy": accuracy(correct),
        "confidence": mean_confidence(confidence),
        "ece": ece(confidence, correct),
        "true_ece": true_calibration_error(confidence, predicted, posterior),
        "aurc": aurc(confidence, correct),
        "aurc_normed": aurc(norm.score(logits), correct),
        "overconfidence": overconfidence(confidence, correct),
        "true_error": float(true_error(predicted, posterior).mean()),
        "p": norm.p_,
    }


def run(job: tuple[str, int, Settings]) -> dict[str, Any]:
    """One method on one seed."""
    method, seed, settings = job
    torch.set_num_threads(1)
    start = time.perf_counter()
    data = settings.draw("train", seed)
    pixels = Pixels(data)
    model = train(method, settings, seed, data, pixels)
    seconds = time.perf_counter() - start
    found: dict[str, Any] = {"method": method, "seed": seed, "seconds": seconds}
    logits, truths = {}, {}
    for split, shift in (("val", None), ("val", "texture"), ("test", None), ("test", "texture"), ("test", "sketch")):
        drawn = settings.draw(split, seed, shift)
        logits[split, shift] = logits_of(model, pixels(drawn.images))
        truths[split] = drawn.labels, drawn.posterior  # the same under every shift
        if split == "test" and shift is None:
            alone = logits_of(model, pixels.context_only(drawn)).softmax(1).amax(1)
            found["context_confidence"] = float(alone.mean())
    norm = LogitNorm().fit(logits["val", None], torch.from_numpy(truths["val"][0]))
    for name, shift in (("test", None), ("texture", "texture"), ("sketch", "sketch")):
        found[name] = measured(logits["test", shift], truths["test"], norm)
    val, test = (mixed(logits[split, None], logits[split, "texture"]) for split in ("val", "test"))
    norm = LogitNorm().fit(val, torch.from_numpy(truths["val"][0]))
    found["mixed"] = measured(test, truths["test"], norm)
    return found


def mixed(plain: Tensor, shifted: Tensor) -> Tensor:
    """Two thirds of the scenes as they are, the others shifted."""
    two_thirds = 2 * len(plain) // 3
    return torch.cat([plain[:two_thirds], shifted[two_thirds:]])


@dataclass(frozen=True)
class Claim:
    """A difference per seed, given the seed's runs by method, and the sign it should have."""

    words: str
    difference: Callable[[dict[str, Any]], float]
    sign: int

    def judged(self, seeds: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Differences, their mean with a 95% t-interval, and what follows from it."""
        values = np.array([self.difference(runs) for runs in seeds])
        mean = float(values.mean())
        half = math.inf
        if len(values) > 1:
            half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
        verdict = "within noise" if abs(mean) <= half else "holds" if mean * self.sign > 0 else "does not hold"
        if not values.any():  # exactly no effect on any seed is not noise
            verdict = "does not hold"
        return {"claim": self.words, "differences": values.tolist(), "mean": mean, "half": half, "verdict": verdict}


def _of(runs: dict[str, Any], method: str, name: str, where: str = "test") -> float:
    return runs[method][where][name]


#: What is expected, in the order of the page. LS + LN is label smoothing ranked by the normalised logit.
CLAIMS = (
    Claim(
        "CE is overconfident: mean confidence less accuracy is above 0",
        lambda r: _of(r, "ce", "confidence") - _of(r, "ce", "accuracy"), 1,
    ),
    Claim("LS has a lower ECE than CE", lambda r: _of(r, "ls", "ece") - _of(r, "ce", "ece"), -1),
    Claim(
        "LS has a lower true calibration error than CE",
        lambda r: _of(r, "ls", "true_ece") - _of(r, "ce", "true_ece"), -1,
    ),
    Claim("LS has a higher AURC than CE", lambda r: _of(r, "ls", "aurc") - _of(r, "ce", "aurc"), 1),
    Claim(
        "Logit normalisation lowers LS's AURC",
        lambda r: _of(r, "ls", "aurc_normed") - _of(r, "ls", "aurc"), -1,
    ),
    Claim(
        "LS + LN takes back at least half of what LS lost in AURC against CE",
        lambda r: _of(r, "ls", "aurc_normed") - (_of(r, "ls", "aurc") + _of(r, "ce", "aurc")) / 2, -1,
    ),
    Claim(
        "On the mixed set, logit normalisation lowers LS's AURC",
        lambda r: _of(r, "ls", "aurc_normed", "mixed") - _of(r, "ls", "aurc", "mixed"), -1,
    ),
    Claim(
        "On the mixed set, LS has a higher AURC than CE",
        lambda r: _of(r, "ls", "aurc", "mixed") - _of(r, "ce", "aurc", "mixed"), 1,
    ),
    Claim(
        "Without objects, ALS is less confident than CE",
        lambda r: r["als"]["context_confidence"] - r["ce"]["context_confidence"], -1,
    ),
    Claim(
        "Without objects, ALS has at most half of CE's confidence",
        lambda r: r["als"]["context_confidence"] - r["ce"]["context_confidence"] / 2, -1,
    ),
    Claim(
        "Without objects, ALS has at most a third of CE's confidence",
        lambda r: r["als"]["context_confidence"] - r["ce"]["context_confidence"] / 3, -1,
    ),
    Claim(
        "Without objects, ALS + context has at most a fifth of CE's confidence",
        lambda r: r["als+context"]["context_confidence"] - r["ce"]["context_confidence"] / 5, -1,
    ),
)  # fmt: skip


def key_of(job: tuple[str, int, Settings], data: str) -> str:
    """Names a run by all it depends on that is written down."""
    method, seed, settings = job
    written = json.dumps([method, seed, asdict(settings), data, torch.__version__], sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def checksum_of_data(settings: Settings) -> str:
    """Changes when the drawing does, so that no result outlives the pictures it came from."""
    small = replace(settings, train=64)
    return hashlib.sha256(small.draw("train", 0).images.tobytes()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    output = arguments.output or (RESULTS.with_name("scenes-quick.json") if arguments.quick else RESULTS)
    if arguments.page:
        with written_aside(PAGE) as aside:
            aside.write_text(page(json.loads(output.read_text(encoding="utf-8"))), encoding="utf-8")
        return
    settings = QUICK if arguments.quick else Settings()
    runs = finished(arguments.seeds, settings, output, arguments.processes)
    report(runs)


def finished(seeds: Sequence[int], settings: Settings, output: Path, processes: int) -> list[dict[str, Any]]:
    """All runs asked for; those found in ``output`` are not computed again, each other is written when it is done."""
    data = checksum_of_data(settings)
    jobs = {key_of(job, data): job for job in ((method, seed, settings) for seed in seeds for method in METHODS)}
    known: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))["known"] if output.exists() else {}
    missing = [key for key in jobs if key not in known]
    say(f"{len(jobs) - len(missing)} of {len(jobs)} runs are finished already")

    def save() -> list[dict[str, Any]]:
        runs = [known[key] for key in jobs if key in known]
        content = {"environment": harness.environment(), "settings": asdict(settings), "runs": runs, "known": known}
        harness.write_json(output, content)
        return runs

    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for key, found in zip(missing, pool.imap(run, [jobs[key] for key in missing]), strict=True):
            known[key] = found
            save()
            say(f"seed {found['seed']}, {found['method']}: {found['seconds']:.0f} s")
    return save()


def by_seed(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs by method, for every seed."""
    seeds = sorted({one["seed"] for one in runs})
    return [{one["method"]: one for one in runs if one["seed"] == seed} for seed in seeds]


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else f"{values[0]:.4f}"


COLUMNS = ("accuracy", "confidence", "overconfidence", "ece", "true_ece", "aurc", "aurc_normed")
TITLES = ("accuracy", "mean confidence", "overconfidence", "ECE", "true calibration error", "AURC", "AURC, LN")


def set_rows(runs: Sequence[dict[str, Any]], where: str) -> list[list[str]]:
    """Mean and standard deviation over the seeds, a row per method."""
    rows = []
    for method in METHODS:
        own = [one for one in runs if one["method"] == method]
        rows.append([method, *(_spread([one[where][name] for one in own]) for name in COLUMNS)])
    return rows


def seed_rows(runs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The numbers of every run on the unshifted test set, and without objects."""
    rows = []
    for one in sorted(runs, key=lambda one: (one["seed"], METHODS.index(one["method"]))):
        cells = [f"{one['test'][name]:.4f}" for name in COLUMNS]
        power = "fell back" if one["test"]["p"] is None else str(one["test"]["p"])
        rows.append([f"{one['seed']} {one['method']}", *cells, power, f"{one['context_confidence']:.4f}"])
    return rows


SEED_TITLES = ["seed, method", *TITLES, "p of LN", "confidence without objects"]


def claim_rows(runs: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for claim in CLAIMS:
        judged = claim.judged(by_seed(runs))
        span = f"{judged['mean']:+.4f} ± {judged['half']:.4f}"
        rows.append([claim.words, " ".join(f"{x:+.4f}" for x in judged["differences"]), span, judged["verdict"]])
    return rows


CLAIM_TITLES = ["claim", "difference per seed", "mean and 95% t-interval", "verdict"]


def report(runs: Sequence[dict[str, Any]]) -> None:
    harness.print_table(SEED_TITLES, seed_rows(runs))
    for where in SETS:
        print()
        harness.print_table([where, *TITLES], set_rows(runs, where))
    print()
    harness.print_table(CLAIM_TITLES, claim_rows(runs))


def page(results: dict[str, Any]) -> str:
    """The results as a page of the documentation."""
    runs, environment = results["runs"], results["environment"]
    seeds = sorted({one["seed"] for one in runs})
    alone = [[m, _spread([one["context_confidence"] for one in runs if one["method"] == m])] for m in METHODS]
    return PAGE_TEXT.format(
        seeds=", ".join(map(str, seeds)),
        machine=f"{environment['cpu']}, {environment['cores']} cores, torch {environment['torch']}",
        seconds=np.mean([one["seconds"] for one in runs]),
        settings=", ".join(f"{name} {value:g}" for name, value in results["settings"].items()),
        claims=table(CLAIM_TITLES, claim_rows(runs)),
        test=table(["method", *TITLES], set_rows(runs, "test")),
        mixed=table(["method", *TITLES], set_rows(runs, "mixed")),
        texture=table(["method", *TITLES], set_rows(runs, "texture")),
        sketch=table(["method", *TITLES], set_rows(runs, "sketch")),
        alone=table(["method", "mean confidence"], alone),
        every=table(SEED_TITLES, seed_rows(runs)),
    )


PAGE_TEXT = """\
<!-- Written by ./dev bench scenes --page; edit benchmarks/scenes.py instead. -->

# What the papers found, on scenes

`calibrant.data.scenes` draws pictures whose posterior P(y | x) is known. Four methods train the same small network on
the same crops: cross-entropy (ce), label smoothing (ls), adaptive label smoothing (als), and adaptive label smoothing
with 15% of the pictures shown without their objects (als+context). The seeds are {seeds}; one run takes
{seconds:.0f} s on one core. Repeat with `./dev bench scenes`. Run on: {machine}.

These settings were chosen on seed 100, which is not reported: {settings}.

A claim holds when the 95% t-interval of its mean difference over the seeds lies on the expected side of 0. It does not
hold when the interval lies on the other side, or when no seed shows any difference; otherwise it is within noise. LN
ranks predictions by the normalised logit, with p chosen on validation data. Where no p beats the softmax's confidence
there, LN falls back to that confidence and changes nothing.

{claims}
## Test set

Mean ± standard deviation over the seeds. The true calibration error compares the confidence with the true probability
of the predicted class instead of with whether the prediction is right.

{test}
## Mixed

Two thirds of the test set as it is, the rest with other textures. LN's p is chosen on validation data that is mixed in
the same way.

{mixed}
## Other textures

{texture}
## Sketches

{sketch}
## Without objects

Every box is filled with the training set's mean pixel.

{alone}
## Every run

{every}"""


if __name__ == "__main__":
    main()
