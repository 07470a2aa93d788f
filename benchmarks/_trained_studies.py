"""What ./dev bench trained trains: a recipe, its methods, and the claims that its numbers are to judge, per study.

Losses have the values of their papers, or those of a search on held-out training data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks._trained_claims import (
    PLAIN,
    Claim,
    Design,
    Term,
    as_accurate,
    higher,
    lower,
    normalised,
    regained,
    times_lower,
)  # fmt: skip
from calibrant.experiments import Results, Study, contenders_of
from calibrant.training import Recipe, load

#: A search that serves all seeds is made on it; it is no seed of the page.
SEARCH_SEED = 100
SHOWN = ("accuracy", "nll", "ece", "aece", "aurc", "aurc + logit-norm", "e_aurc")
LR_ECE, LR_ACCURACY = "lr, tuned for ece", "lr, tuned for accuracy"


@dataclass(frozen=True)
class TrainedStudy:
    """A comparison of the page.

    Attributes:
        name: As on the command line.
        recipe: That of every run.
        folder: Of the data below ``--data``; empty for data that need no files.
        note: What a reader has to know.
        claims: What is judged.
        minutes: CPU minutes of one run with one thread, about.
        seeds: Reported, unless the command asks for others.
        first: Methods whose seeds are run before any other method.
        tune, keep_held_out: As for `Study`.
        columns: Of the table.
        asks_people: Whether CIFAR-10H, in the folder cifar10h below ``--data``, is a second truth of the test images.
        curves: The set whose risk-coverage curves are drawn; empty for none.
        design: What its seeds are.
    """

    name: str
    recipe: str
    folder: str
    note: str
    claims: tuple[Claim, ...]
    minutes: float
    seeds: int = 3
    first: tuple[str, ...] = ()
    tune: tuple[str, ...] = ()
    keep_held_out: bool = False
    columns: tuple[str, ...] = SHOWN
    asks_people: bool = False
    curves: str = ""
    design: Design = PLAIN

    @property
    def folders(self) -> tuple[str, ...]:
        """Everything that must be below ``--data``."""
        return (self.folder, "cifar10h") if self.asks_people else (self.folder,)

    @property
    def reference(self) -> str:
        """The method that others are compared with: cross-entropy on the labels as they are."""
        return "hard" if "hard" in self.first else "ce"

    def load(self) -> Recipe:
        """The recipe."""
        return load(self.recipe)

    @property
    def pools_curves(self) -> bool:
        """Whether the set of the curves pools several."""
        return bool(getattr(self.load().data.also.get(self.curves), "pool", False))

    def seeds_of(self, recipe: Recipe, number: int) -> tuple[int, ...]:
        """Seeds of the runs: a search that is not made for every seed is made on one that is not reported."""
        own = (SEARCH_SEED,) if self.tune and not recipe.data.resample else ()
        return (*own, *range(number))

    def plan(self, number: int, methods: Sequence[str] | None = None) -> Study:
        """The comparison of some methods, or of all, with so many seeds."""
        recipe = self.load()
        contenders = contenders_of(recipe, methods or None)
        seeds = self.seeds_of(recipe, number)
        return Study(recipe, contenders, seeds, tune=self.tune, keep_held_out=self.keep_held_out)


class Numbers(NamedTuple):
    """What was measured of a study.

    Attributes:
        tested: Numbers of the reported seeds.
        trials: Those of the search, on held-out training data.
        chance: The ECE that a perfectly calibrated network with the reference's confidences shows by chance; None
            without runs.
        machines: What the runs were made on.
    """

    tested: Results = Results()
    trials: Results = Results()
    chance: float | None = None
    machines: tuple[str, ...] = ()


def _lr_claims() -> tuple[Claim, ...]:
    """Of LR's Table 1."""
    return (
        lower("LR", "Tuned for ECE, LR's ECE is below CE's", LR_ECE, "ce", "ece"),
        as_accurate("LR", "Tuned for ECE, LR costs at most 0.5 points of accuracy", LR_ECE, "ce"),
        lower("LR", "Tuned for accuracy, LR's ECE is below CE's", LR_ACCURACY, "ce", "ece"),
        lower("LR", "Tuned for ECE, LR's ECE is below that of LS", LR_ECE, "ls, tuned for ece", "ece"),
    )


def _sc_claims(smoothed: str, at: str = "", where: str = "") -> tuple[Claim, ...]:
    """SC's two findings about label smoothing, on one set of samples."""
    lost = f"Logit normalisation takes back more than half of what LS lost{where}"
    return (
        _worse_ranking(smoothed, "ce", f"aurc{at}", where),
        normalised("SC", f"Logit normalisation lowers the AURC of LS{where}", smoothed, at),
        regained("SC", lost, smoothed, "ce", at),
    )


def _worse_ranking(smoothed: str, plain: str, column: str, where: str = "") -> Claim:
    return higher("SC", f"LS ranks errors worse than CE{where}: its AURC is higher", smoothed, plain, column)


def _below_scaled(paper: str, label: str, title: str, scaled: str) -> Claim:
    """A loss needs no repair to be better calibrated than cross-entropy with one."""
    terms = Term(label, "ece", 1.0), Term("ce", scaled, -1.0)
    return Claim(paper, f"{title}'s ECE is below that of CE with temperature scaling", terms, -1)


TABLE_NOTE = """\
Training and test data are merged and drawn anew for every seed, and every seed has its own search on a sixth of its
training data, as LR does it; the chosen settings are then trained on all of the training data. Seeds share samples, so
their intervals are corrected for that (Nadeau and Bengio 2003). SC's claims are about LS tuned for accuracy."""

DIGITS = TrainedStudy(
    "digits",
    "small/digits",
    "",
    f"scikit-learn's 1,797 handwritten digits, 450 of them to test. {TABLE_NOTE}",
    (*_lr_claims(), *_sc_claims("ls, tuned for accuracy")),
    minutes=0.05,
    seeds=5,
    tune=("accuracy", "ece"),
    design=Design(overlap=450 / 1347),
)

BREAST_CANCER = TrainedStudy(
    "breast_cancer",
    "small/table",
    "breast_cancer.npz",
    "scikit-learn's breast cancer data: 569 rows of 30 features, two classes, 171 rows to test. Each feature has mean "
    f"0 and deviation 1 over all rows. {TABLE_NOTE}",
    (*_lr_claims(), *_sc_claims("ls, tuned for accuracy")),
    minutes=0.05,
    seeds=5,
    tune=("accuracy", "ece"),
    design=Design(overlap=171 / 398),
)

FASHION_MNIST = TrainedStudy(
    "fashion_mnist",
    "small/fashion_mnist",
    "fashion-mnist",
    "LR's network, two hidden layers of 1,024, 25 epochs on 10,000 images, others for every seed. One parameter of "
    f"each loss is chosen from LR's seven values on seed {SEARCH_SEED}, by accuracy and by ECE on a sixth of the "
    "training data. SC's claims are about LS tuned for accuracy. `ecp` is LR's published baseline, whose entropy has "
    "the wrong sign; `ce on 85%` is trained without the data that a temperature is fitted on.",
    (
        *_lr_claims(),
        times_lower("LR", "Tuned for ECE, LR's ECE is more than 4 times lower than CE's", LR_ECE, "ce", "ece", 4.0),
        *_sc_claims("ls, tuned for accuracy"),
    ),
    minutes=1.0,
    seeds=5,
    first=("ce", "lr"),
    tune=("accuracy", "ece"),
    keep_held_out=True,
    design=Design(looks=2),
)

FASHION_MNIST_CNN = TrainedStudy(
    "fashion_mnist_cnn",
    "small/fashion_mnist_cnn",
    "fashion-mnist",
    "Four convolutions, 30 epochs on 10,000 images, others for every seed; 5,000 more are held out for the repairs. "
    f"The number of images was chosen on seed {SEARCH_SEED} so that cross-entropy is overconfident, as in the papers. "
    "Losses have the values of their papers, and margins are 6.",
    (
        lower("LR", "LR's ECE is below CE's", "lr", "ce", "ece"),
        as_accurate("LR", "LR costs at most 0.5 points of accuracy", "lr", "ce"),
        *_sc_claims("ls"),
        *_sc_claims("ls, alpha=0.2", where=" (alpha = 0.2)"),
        *(
            lower("ACLS", f"{title}'s ECE is below CE's", name, "ce", "ece")
            for name, title in {  # those that are below CE in every column of ACLS Table 3
                "ls": "LS", "mbls": "MbLS", "acls": "ACLS", "focal": "Focal loss", "flsd": "FLSD", "cpc": "CPC",
                "crl": "CRL",
            }.items()
        ),
        lower("ACLS", "ACLS's ECE is below that of MbLS", "acls", "mbls", "ece"),
        lower("ACLS", "ACLS's ECE is below that of LS", "acls", "ls", "ece"),
        _below_scaled("ACLS", "acls", "ACLS", "ece + temperature"),
        lower("CRL", "CRL's AURC is below CE's", "crl", "ce", "aurc"),
    ),
    minutes=1.5,
    first=("ce", "ls", "lr"),
    columns=("accuracy", "nll", "ece", "ece + temperature", *SHOWN[3:]),
)  # fmt: skip

CIFAR10 = TrainedStudy(
    "cifar10",
    "small/cifar10",
    "cifar-10",
    "A residual network, 20 epochs; 5,000 of the 50,000 images are held out for the repairs. `people` are the test "
    "images with CIFAR-10H's votes as the truth: a prediction is right with the share of people who say so.",
    (
        *(
            claim
            for alpha in ("0.05", "0.1", "0.2")
            for claim in _sc_claims(f"ls, alpha={alpha}", where=f" (alpha = {alpha})")
        ),
        *_sc_claims("ls, alpha=0.2", "@people", " by people's votes (alpha = 0.2)"),
    ),
    minutes=20.0,
    first=("ce", "ls, alpha=0.2"),
    columns=(
        *SHOWN, "coverage_at_risk_0.01", "coverage_at_risk_0.01 + logit-norm", "accuracy@people", "nll@people",
        "ece@people", "aurc@people", "aurc@people + logit-norm",
    ),
    asks_people=True,
    curves="test",
)  # fmt: skip

CONTEXT = "mean_confidence@context"


def _als_claims() -> tuple[Claim, ...]:
    """Of ALS's Tables 1 and 2, and SC's where label smoothing is trained too."""
    return (
        lower("ALS", "Without objects, ALS is less confident than hard labels", "als, beta=1", "hard", CONTEXT),
        lower("ALS", "Without objects, ALS is less confident than LS", "als, beta=1", "ls", CONTEXT),
        lower("ALS", "Without objects, ALS + context is less confident than ALS", "als + context", "als, beta=1",
              CONTEXT),
        as_accurate("ALS", "ALS costs at most 1 point of accuracy", "als, beta=1", "hard", 0.01),
        lower("ALS", "The errors of ALS are less confident than those of hard labels", "als, beta=1", "hard",
              "overconfidence"),
        _worse_ranking("ls", "hard", "aurc"),
    )  # fmt: skip


def _tenfold(label: str, title: str) -> Claim:
    """Of ALS's Table 1: confidence on images whose objects are covered falls to less than a tenth."""
    words = f"Without objects, {title} is more than 10 times less confident than hard labels"
    return times_lower("ALS", words, label, "hard", CONTEXT, 10.0)


ALS_COLUMNS = ("accuracy", "ece", "aurc", "overconfidence", "underconfidence", CONTEXT)
ALS_FIRST = ("hard", "als, beta=1", "als + context", "ls")

SCENES = TrainedStudy(
    "scenes",
    "small/scenes",
    "",
    "Drawn scenes, no files. `context` are the test images with every object covered. Another network and another "
    "length of training on the same scenes are in [What the papers found, on scenes](scenes.md). ALS's factor of 10 is "
    "not judged: with 16 classes the confidence is at least 6.25%.",
    _als_claims(),
    minutes=1.5,
    first=ALS_FIRST,
    columns=ALS_COLUMNS,
)

TINY_IMAGENET = TrainedStudy(
    "tiny_imagenet_50",
    "small/tiny_imagenet_50",
    "tiny-imagenet",
    "50 classes of Tiny-ImageNet with their boxes, crops of 32 pixels, 12 epochs. `context` are the test images with "
    "every object covered.",
    (*_als_claims(), _tenfold("als, beta=1", "ALS"), _tenfold("als + context", "ALS + context")),
    minutes=10.0,
    first=ALS_FIRST,
    columns=ALS_COLUMNS,
)

NEWSGROUPS = TrainedStudy(
    "newsgroups",
    "small/newsgroups_gpcn",
    "20news",
    "Texts of 200 words without headers, 8 epochs. Word vectors are learned from the training texts (which words stand "
    f"near each other) and kept as they are, in place of GloVe's; that, and the epochs, were chosen on seed "
    f"{SEARCH_SEED}.",
    (
        lower("MbLS", "MbLS's ECE is below CE's", "mbls", "ce", "ece"),
        lower("MbLS", "MbLS's ECE is below that of LS", "mbls", "ls", "ece"),
        lower("MbLS", "MbLS's ECE is below that of focal loss", "mbls", "focal", "ece"),
        as_accurate("MbLS", "MbLS costs at most 0.5 points of accuracy", "mbls", "ce"),
        _below_scaled("MbLS", "mbls", "MbLS", "ece + temperature-mbls"),
        *_sc_claims("ls"),
    ),
    minutes=2.5,
    seeds=5,
    first=("ce", "ls", "mbls"),
    columns=(*SHOWN, "ece + temperature-mbls"),
)

PACS = TrainedStudy(
    "pacs",
    "small/pacs_photo_to_sketch",
    "pacs",
    "Trained on photographs; tested on other photographs, on sketches, and on both pooled.",
    tuple(
        claim
        for at, where in (("", " on photographs"), ("@sketch", " on sketches"), ("@pooled", " on both pooled"))
        for claim in _sc_claims("ls, alpha=0.2", at, where)
    ),
    minutes=0.7,
    seeds=10,
    columns=(
        "accuracy", "ece", "aurc", "aurc + logit-norm", "accuracy@sketch", "ece@sketch", "aurc@sketch",
        "aurc@sketch + logit-norm", "aurc@pooled", "aurc@pooled + logit-norm",
    ),
    curves="pooled",
    design=Design(looks=2),
)  # fmt: skip

STUDIES = {
    study.name: study
    for study in (
        DIGITS, BREAST_CANCER, FASHION_MNIST_CNN, FASHION_MNIST, PACS, NEWSGROUPS, SCENES, TINY_IMAGENET, CIFAR10,
    )
}  # fmt: skip
