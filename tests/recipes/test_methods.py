"""Names of recipes, and the rows of the papers' tables as their methods: planned, with the values of print.

Oracle: the values below were typed from the papers (and, where a comment of the recipe says so, from their released
code), not from the recipes.
"""

import tomllib
from pathlib import Path

import pathspec
import pytest

from calibrant.experiments import Study, contenders_of
from calibrant.experiments.tables.cells import parse_column
from calibrant.experiments.tables.summaries import columns_of
from calibrant.losses import describe
from calibrant.recipes import FOLDER, find, names
from calibrant.training import TUNED_FOR, load, load_method
from tests.helpers.errors import facts

every = pytest.mark.parametrize("name", names())


@pytest.mark.slow
@every
def test_every_row_can_be_planned_and_no_two_are_the_same_run(name):
    recipe = load(name)
    assert recipe.methods
    study = Study(recipe, contenders_of(recipe), (0,))
    keys = {label: run.key for label, run in zip(study.methods, study.finals({}), strict=True)}
    assert len(set(keys.values())) == len(keys)
    assert keys == {label: load_method(name, label).key for label in keys}


@every
def test_what_a_paper_prints_belongs_to_a_row_that_has_runs(name):
    recipe = load(name)
    owners = contenders_of(recipe)
    rows = [entry.method for entry in recipe.expected] + [row for t in recipe.tables.values() for row in t.rows]
    for row in rows:
        method, _, target = row.partition(TUNED_FOR)
        assert (recipe.methods[method].of or method) in owners
        assert target in ("", "accuracy", "ece")
        if target:  # there is something to search
            label = recipe.methods[method].of or method
            assert len(Study(recipe, {label: owners[label]}, (0,), tune=(target,)).candidates(label)) > 1
    used = {recipe.methods[row.partition(TUNED_FOR)[0]].of or row.partition(TUNED_FOR)[0] for row in rows}
    assert bool(recipe.tables) == (recipe.paper != "SC")  # which prints figures
    assert used == set(owners) or not recipe.tables


@every
def test_columns_are_metrics_of_sets_that_a_run_predicts(name):
    recipe = load(name)
    sets = {"test", *recipe.data.also} | ({"val"} if recipe.data.val or recipe.data.hold_out else set())
    for table in recipe.tables.values():
        assert len(set(table.rows)) == len(table.rows)
        assert {parse_column(text).set for text in table.columns} <= sets
    asked = {(column.metric, column.set) for column in columns_of(recipe)}
    for entry in recipe.expected:
        assert {(metric, entry.where) for metric in entry.values} <= asked


@every
def test_a_number_of_one_definition_has_one_name(name):
    """ALS's errors are pycalib's, and no other paper's are."""
    recipe = load(name)
    metrics = {parse_column(text).metric for table in recipe.tables.values() for text in table.columns}
    metrics |= {metric for entry in recipe.expected for metric in entry.values}
    errors = {metric for metric in metrics if metric.split("_")[0] in ("ece", "mce", "pycalib")}
    assert all(metric.startswith("pycalib_") == (recipe.paper == "ALS") for metric in errors)


def values_of(name, method):
    """Everything that a paper may print of a run: the loss with its defaults, and the rest by names with dots."""
    recipe = load_method(name, method)
    values = {
        "loss": recipe.loss.name,
        "network": recipe.model.name,
        "epochs": recipe.training.epochs,
        "steps": recipe.training.steps,
        "batch": recipe.training.batch_size,
        "optimiser": recipe.optimiser.name,
        "rate": recipe.optimiser.rate,
        "momentum": recipe.optimiser.momentum,
        "betas": recipe.optimiser.betas,
        "nesterov": recipe.optimiser.nesterov,
        "decay": recipe.optimiser.weight_decay,
        "sam": recipe.optimiser.sam,
        "schedule": recipe.schedule.name,
        "milestones": recipe.schedule.milestones,
        "every": recipe.schedule.every,
        "factor": recipe.schedule.gamma,
        "power": recipe.schedule.power,
        "warmup": recipe.schedule.warmup,
        "mixing": recipe.mixing and recipe.mixing.name,
        "targets": recipe.targets.name,
        "beta": recipe.targets.beta,
        "context": recipe.data.context_rate,
        "train": recipe.data.train,
        "test_share": recipe.data.test_share,
        "held out": recipe.data.hold_out
        and (recipe.data.hold_out.count or recipe.data.hold_out.per_class or recipe.data.hold_out.fraction),
        "masked": recipe.data.variant == "single-object" and "train" in recipe.data.variant_of,
        "annotated": recipe.data.split_options.get("train", {}).get("only_annotated"),
    }
    parameters = describe(recipe.loss.name).defaults() | recipe.loss.parameters
    return values | {f"loss.{key}": value for key, value in parameters.items()}


#: ACLS 4.1, for every method of its Table 3.
ACLS_CIFAR = {"epochs": 350, "batch": 128, "rate": 0.1, "momentum": 0.9, "decay": 5e-4, "milestones": (150, 250),
              "factor": 0.1, "optimiser": "sgd", "held out": 5000, "mixing": None}  # fmt: skip
ACLS_TINY = {"epochs": 100, "batch": 64, "rate": 0.1, "momentum": 0.9, "decay": 5e-4, "milestones": (40, 60),
             "factor": 0.1, "optimiser": "sgd", "held out": 50}  # fmt: skip
ACLS_IMAGENET = {"epochs": 200, "batch": 256, "optimiser": "adamw", "rate": 5e-4, "decay": 5e-2, "betas": (0.9, 0.999),
                 "schedule": "cosine", "network": "resnet50"}  # fmt: skip
ACLS_VOC = {"epochs": 100, "batch": 8, "rate": 0.01, "momentum": 0.9, "decay": 5e-4, "milestones": (40, 80),
            "factor": 0.1, "loss.ignore_index": 255}  # fmt: skip
#: ALS 4.1 and A.3.
ALS = {"epochs": 300, "batch": 256, "rate": 0.1, "milestones": (75, 150, 225), "factor": 0.1}
ALS_OPEN = {"epochs": 72, "batch": 256, "rate": 0.1, "milestones": (18, 36, 54), "factor": 0.1, "masked": True}
#: ALS 4.3.
ALS_COCO = {"epochs": 10, "batch": 16, "rate": 0.01, "schedule": "step", "every": 4, "network": "resnet50"}
#: MbLS's appendix, B.
MBLS_CIFAR = {"epochs": 350, "batch": 128, "rate": 0.1, "momentum": 0.9, "milestones": (150, 250), "held out": 5000}
MBLS_TINY = {"epochs": 100, "batch": 64, "rate": 0.1, "milestones": (40, 60), "held out": 50}
MBLS_CUB = {"epochs": 200, "batch": 16, "rate": 0.1, "momentum": 0.9, "schedule": "step", "every": 80, "factor": 0.1}
MBLS_NEWS = {"epochs": 100, "optimiser": "adam", "rate": 0.001, "betas": (0.9, 0.999), "milestones": (50,),
             "factor": 0.1, "held out": 900, "train": "all", "test_share": 0.2}  # fmt: skip
MBLS_VOC = {"epochs": 100, "batch": 8, "rate": 0.01, "momentum": 0.9, "schedule": "step", "every": 40, "factor": 0.1}
#: LR, "Experimental Setting".
LR_SGD = {"optimiser": "sgd", "momentum": 0.9, "nesterov": True, "batch": 64}
#: SC, B.1 and B.2.
SC_RESNET = {"epochs": 120, "batch": 1024, "rate": 0.4, "momentum": 0.9, "decay": 1e-4, "warmup": 5,
             "schedule": "cosine", "held out": 50000}  # fmt: skip
SC_VIT = {"epochs": 300, "batch": 2048, "rate": 3e-3, "optimiser": "adamw", "betas": (0.9, 0.999), "warmup": 15,
          "schedule": "cosine", "sam": 0.2, "held out": 50000}  # fmt: skip
SC_DENSENET = {"epochs": 300, "batch": 64, "rate": 0.1, "nesterov": True, "momentum": 0.9, "decay": 1e-4,
               "milestones": (150, 225), "factor": 0.1, "held out": 5000}  # fmt: skip
SC_CITY = {"steps": 40000, "batch": 12, "rate": 0.01, "momentum": 0.9, "decay": 1e-4, "schedule": "poly", "power": 0.9,
           "held out": 100}  # fmt: skip

PLANNED = [
    ("als_detection_coco", "als, beta=1", ALS_COCO | {"train": "train2017"}),
    ("acls_cifar10_resnet50", "ce", ACLS_CIFAR | {"loss": "ce", "network": "resnet50"}),
    ("acls_cifar10_resnet50", "mbls", ACLS_CIFAR | {"loss": "mbls", "loss.margin": 6, "loss.strength": 0.1}),
    ("acls_cifar10_resnet50", "ecp", ACLS_CIFAR | {"loss": "ecp", "loss.variant": "released", "loss.strength": 0.1}),
    ("acls_cifar10_resnet50", "ls", ACLS_CIFAR | {"loss": "ls", "loss.alpha": 0.05, "loss.spread": "all"}),
    ("acls_cifar10_resnet50", "focal", ACLS_CIFAR | {"loss": "focal", "loss.gamma": 3}),
    ("acls_cifar10_resnet50", "flsd", ACLS_CIFAR | {"loss": "flsd", "loss.gamma": 3, "loss.variant": "released"}),
    ("acls_cifar10_resnet50", "crl", ACLS_CIFAR | {"loss": "crl", "loss.strength": 1, "loss.score": "msp"}),
    ("acls_cifar10_resnet50", "acls",
     ACLS_CIFAR | {"loss.margin": 6, "loss.lambda1": 0.1, "loss.lambda2": 0.01, "loss.variant": "released"}),
    ("acls_cifar10_resnet101", "acls", ACLS_CIFAR | {"network": "resnet101", "loss.margin": 6, "loss.lambda2": 0.01}),
    ("acls_tiny_imagenet_resnet50", "acls",
     ACLS_TINY | {"loss.margin": 10, "loss.lambda1": 0.1, "loss.lambda2": 0.01, "loss.variant": "released"}),
    ("acls_tiny_imagenet_resnet50", "mbls", ACLS_TINY | {"loss.margin": 10, "loss.strength": 0.1}),
    ("acls_tiny_imagenet_resnet50", "acls, smoothing only", ACLS_TINY | {"loss": "acls", "loss.indicator": "none"}),
    ("acls_tiny_imagenet_resnet50", "acls, indicator only",
     ACLS_TINY | {"loss.smoothing": "constant", "loss.indicator": "margin", "loss.margin": 10}),
    ("acls_tiny_imagenet_resnet50", "acls, ranking", ACLS_TINY | {"loss": "acls", "loss.indicator": "ranking"}),
    ("acls_tiny_imagenet_resnet50", "crl, margin",
     ACLS_TINY | {"loss": "crl", "loss.indicator": "margin", "loss.margin": 10}),
    ("acls_tiny_imagenet_resnet50", "cape",
     ACLS_TINY | {"loss": "cape", "loss.form": "bin", "loss.bins": 15, "loss.strength": 1}),
    ("acls_tiny_imagenet_resnet50", "cutmix", ACLS_TINY | {"loss": "ce", "mixing": "cutmix"}),
    ("acls_tiny_imagenet_resnet50", "ce", ACLS_TINY | {"loss": "ce", "mixing": None}),
    ("acls_tiny_imagenet_resnet50", "acls, lambda1=0, lambda2=0.015",
     ACLS_TINY | {"loss.margin": 10, "loss.lambda1": 0, "loss.lambda2": 0.015}),
    ("acls_tiny_imagenet_resnet101", "acls, smoothing only", ACLS_TINY | {"network": "resnet101", "loss": "acls"}),
    ("acls_imagenet_resnet50", "acls", ACLS_IMAGENET | {"loss.margin": 10, "loss.lambda1": 0.1, "loss.lambda2": 0.01}),
    ("acls_imagenet_resnet50", "mdca", ACLS_IMAGENET | {"loss": "mdca", "loss.strength": 1, "loss.base": "ce"}),
    ("acls_voc_deeplabv3", "acls", ACLS_VOC | {"loss.margin": 10, "loss.variant": "released"}),
    ("acls_voc_deeplabv3", "ce", ACLS_VOC | {"loss": "ce"}),
    ("als_imagenet", "hard", ALS | {"loss": "ce", "targets": "hard", "masked": True, "network": "resnet50"}),
    ("als_imagenet", "ls",
     ALS | {"loss": "ls", "loss.alpha": 0.1, "loss.spread": "others", "targets": "hard", "masked": True}),
    ("als_imagenet", "cutmix", ALS | {"loss": "ce", "targets": "hard", "mixing": "cutmix", "masked": True}),
    ("als_imagenet", "als, beta=1", ALS | {"targets": "adaptive", "beta": 1, "context": 0, "mixing": None}),
    ("als_imagenet", "als, beta=0.75", ALS | {"targets": "adaptive", "beta": 0.75, "masked": True}),
    ("als_imagenet", "als, beta=0.25", ALS | {"targets": "adaptive", "beta": 0.25, "masked": True}),
    ("als_imagenet", "als + context", ALS | {"targets": "adaptive", "beta": 1, "context": 0.15, "masked": True}),
    ("als_imagenet", "als + cutmix", ALS | {"targets": "adaptive", "beta": 1, "mixing": "cutmix", "masked": True}),
    ("als_imagenet", "hard, full", ALS | {"targets": "hard", "masked": False, "annotated": False, "mixing": None}),
    ("als_imagenet", "cutmix, full", ALS | {"mixing": "cutmix", "masked": False, "annotated": False}),
    ("als_imagenet", "ricap, full", ALS | {"mixing": "ricap", "masked": False, "annotated": False}),
    ("als_imagenet", "als, boxes", ALS | {"targets": "adaptive", "beta": 1, "masked": False, "annotated": True}),
    ("als_imagenet", "als, ResNet-101", ALS | {"targets": "adaptive", "network": "resnet101", "masked": True}),
    ("als_open_images", "als + context", ALS_OPEN | {"targets": "adaptive", "context": 0.15}),
    ("als_open_images", "ls", ALS_OPEN | {"loss": "ls", "loss.alpha": 0.1, "loss.spread": "others"}),
    ("mbls_cifar10_resnet50", "mbls", MBLS_CIFAR | {"loss.margin": 6, "loss.strength": 0.1, "network": "resnet50"}),
    ("mbls_cifar10_resnet50", "flsd, ResNet-101", MBLS_CIFAR | {"loss": "flsd", "network": "resnet101"}),
    ("mbls_tiny_imagenet_resnet50", "ls, ResNet-101",
     MBLS_TINY | {"loss": "ls", "loss.alpha": 0.05, "network": "resnet101"}),
    ("mbls_cub_resnet101", "mbls", MBLS_CUB | {"loss.margin": 10, "network": "resnet101"}),
    ("mbls_20news_gpcn", "mbls", MBLS_NEWS | {"loss.margin": 10, "network": "gpcn"}),
    ("mbls_voc_deeplabv3", "mbls", MBLS_VOC | {"loss.margin": 10}),
    ("lr_mnist_mlp", "ce", LR_SGD | {"epochs": 25, "rate": 0.05, "network": "mlp", "held out": None}),
    ("lr_mnist_mlp", "ecp", LR_SGD | {"epochs": 25, "loss": "ecp", "loss.variant": "lr"}),
    ("lr_mnist_mlp", "ce on 85%", LR_SGD | {"epochs": 25, "loss": "ce", "held out": 0.15}),
    ("lr_fashion_mnist_mlp", "lr", LR_SGD | {"epochs": 50, "rate": 0.05, "loss": "lr"}),
    ("lr_cifar10_vgg16", "focal", LR_SGD | {"epochs": 200, "rate": 0.01, "loss": "focal"}),
    ("lr_cifar10_resnet56v2", "ls", LR_SGD | {"epochs": 200, "rate": 0.1, "loss": "ls"}),
    ("lr_cifar100_densenet", "lr", LR_SGD | {"epochs": 300, "rate": 0.1, "network": "densenet_bc_100_12"}),
    ("sc_imagenet_resnet50", "ls, alpha=0.2", SC_RESNET | {"loss": "ls", "loss.alpha": 0.2, "loss.spread": "all"}),
    ("sc_imagenet_vit_s16", "ce", SC_VIT | {"loss": "ce"}),
    ("sc_cifar100_densenet", "ls, alpha=0.2", SC_DENSENET | {"loss.alpha": 0.2}),
    ("sc_cityscapes_deeplabv3plus", "ce", SC_CITY | {"loss": "ce", "loss.ignore_index": 255}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "method", "printed"), PLANNED, ids=[f"{n}: {m}" for n, m, _ in PLANNED])
def test_the_values_of_a_run_are_those_of_print(name, method, printed):
    planned = values_of(name, method)
    assert {key: planned[key] for key in printed} == printed


def test_temperatures_come_from_the_rule_of_the_paper():
    """MbLS: T in 0.1 steps by ECE; ACLS follows it; LR: from its own grid, on 15% that were held out for it."""
    for name, method, repair in (
        ("acls_cifar10_resnet50", "ce", "temperature-mbls"),
        ("mbls_cub_resnet101", "ce", "temperature-mbls"),
        ("mbls_tiny_imagenet_resnet50", "ce", "temperature-mbls"),
        ("lr_cifar100_vgg16", "ce on 85%", "temperature-lr"),
    ):
        row = load(name).methods["ce + temperature"]
        assert (row.of, row.repair) == (method, repair)
    assert load("mbls_20news_gpcn").tables["1"].columns == ("ece", "ece + temperature-mbls")


def test_searches_are_those_of_print():
    """LR, "Experimental Setting"; ACLS, S2.2, with its zeros."""
    for name in (name for name in names() if name.startswith("lr_")):
        assert load(name).search == {
            "ls": {"alpha": (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4)},
            "ecp": {"strength": (0.1, 0.3, 0.5, 1, 2, 4, 8)},
            "focal": {"gamma": (0.1, 0.2, 0.5, 1, 2, 3.5, 5)},
            "lr": {"alpha": (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4)},
        }
    recipe = load("acls_tiny_imagenet_resnet50")
    assert recipe.search["acls"] == {"lambda1": (0, 0.05, 0.1, 0.15), "lambda2": (0, 0.005, 0.01, 0.015)}
    settings = [values_of("acls_tiny_imagenet_resnet50", row) for row in recipe.tables["A"].rows]
    grid = [(values["loss.lambda1"], values["loss.lambda2"]) for values in settings]
    assert grid == [(a, b) for a in (0, 0.05, 0.1, 0.15) for b in (0, 0.005, 0.01, 0.015)]
    study = Study(recipe, contenders_of(recipe, ["acls"]), (0,), tune=("ece",))
    assert len(study.candidates("acls")) == 16


@pytest.mark.parametrize(
    ("name", "table", "labels"),
    [
        ("acls_cifar10_resnet50", "3", "CE,CE+TS,MMCE,ECP,LS,FL,FLSD,MDCA,CPC,MbLS,CRL,ACLS"),
        ("acls_tiny_imagenet_resnet101", "5", "LS,MDCA,Ours (AR only),MbLS,Ours (CR only),ACLS"),
        ("acls_tiny_imagenet_resnet50", "1", "LS,FLSD,CPC,MDCA,MbLS,CRL,ACLS"),
        ("acls_tiny_imagenet_resnet50", "B", "CE,CE+TS,MMCE,CutMix,CaPE-bin,ACLS"),
        ("acls_voc_deeplabv3", "4", "CE,ECP,LS,FL,MbLS,ACLS"),
        ("als_imagenet", "1", "Hard Label (mask),Label Smoothing (mask),CutMix (mask),A. L.S. (mask)"),
        ("mbls_cub_resnet101", "1", "CE,LS,FL,FLSD,Ours"),
        ("mbls_cifar10_vit", "2", "LS,FL,FLSD,Ours"),
        ("lr_mnist_mlp", "1", "CE (alpha = 0),LS,CP,FL,LR,CE (alpha = 0; T opt.),LS,CP,FL,LR"),
    ],
)
def test_rows_are_printed_in_the_order_and_words_of_the_paper(name, table, labels):
    recipe = load(name)
    rows = [recipe.methods[row.partition(TUNED_FOR)[0]].label for row in recipe.tables[table].rows]
    assert [label.replace(", T", "; T") for label in rows] == labels.split(",")


ROOT = Path(__file__).parents[2]


def test_a_name_is_a_file_of_the_package():
    assert find("small/scenes") == FOLDER / "small/scenes.toml"
    assert find("small/scenes.toml") == find(Path("small/scenes"))
    assert find("acls_cifar10_resnet50").parent == FOLDER


def test_a_file_wins_over_a_name_and_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small/scenes").mkdir(parents=True)  # the output of an earlier run, say
    assert find("small/scenes") == FOLDER / "small/scenes.toml"
    Path("small/scenes.toml").write_text("title = 'mine'")
    assert find("small/scenes.toml").read_text() == "title = 'mine'"
    with pytest.raises(ValueError, match=facts("a folder")):
        find("small")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("scenes", "small/scenes"),
        ("recipes/small/scenes.toml", "small/scenes"),
        ("acls_cifar10_resnet5", "acls_cifar10_resnet50"),
        ("ACLS_CIFAR10_RESNET50", "acls_cifar10_resnet50"),
    ],
)
def test_a_wrong_name_gets_the_nearest_ones(name, nearest):
    with pytest.raises(ValueError, match=facts(name, nearest)):
        find(name)


@pytest.mark.parametrize("name", ["", "..", "nothing-like-it", "x" * 100_000, "a\0b"])
def test_other_names_are_one_sentence(name):
    with pytest.raises((ValueError, OSError)) as error:
        find(name)
    assert "\n" not in str(error.value)


def test_the_wheel_has_every_recipe():
    """The build backend packs what lies in the package and git does not ignore."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build == {"targets": {"wheel": {"packages": ["src/calibrant"]}}}  # nothing excluded
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src/calibrant").rglob("*.toml")]
    ignored = pathspec.GitIgnoreSpec.from_lines((ROOT / ".gitignore").read_text().splitlines())
    shipped = {file for file in files if not ignored.match_file(file)}
    assert shipped == {f"src/calibrant/recipes/{name}.toml" for name in names()}
    assert len(shipped) >= 35
