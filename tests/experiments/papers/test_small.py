from calibrant.experiments.demo_claims import study_recipe
from calibrant.experiments.papers import small
from calibrant.training import check_recipe, load

FULL = {
    "title": "Full",
    "paper": "ALS",
    "data": {"layout": "imagenet", "also": {"imagenet-v2": {"layout": "image-folder"}}},
    "model": {"name": "resnet50"},
    "methods": {
        "hard": {"label": "Hard Label"},
        "hard, ResNet-101": {"model": {"name": "resnet101"}},
        "ls": {"loss": {"name": "ls", "alpha": 0.1, "spread": "others"}},
        "als + context": {"targets": {"name": "adaptive", "beta": 0.75}, "data": {"context_rate": 0.15, "layout": "x"}},
        "hard + T": {"of": "hard", "repair": "temperature-mbls"},
    },
    "tables": {
        "2": {
            "rows": ["hard", "hard, ResNet-101", "ls"],
            "columns": ["accuracy@imagenet-v2", "mean_iou", "ece + temperature-mbls"],
        }
    },
    "expected": [
        {"method": "ls", "where": "imagenet-v2", "values": {"accuracy": 0.5}},
        {"method": "hard, ResNet-101", "values": {"accuracy": 0.6}},
    ],
}


def test_methods_keep_what_makes_them_these_methods():
    recipe = small.small_recipe(check_recipe(FULL, "full"))
    assert list(recipe.methods) == ["hard", "ls", "als + context", "hard + T"]  # the network is another
    assert recipe.methods["ls"].changes == {"loss": {"name": "ls", "alpha": 0.1, "spread": "others"}}
    adaptive = {"targets.name": "adaptive", "targets.beta": 0.75, "data.context_rate": 0.15}
    assert recipe.methods["als + context"].changes == adaptive
    assert recipe.data.layout == "scenes"
    assert recipe.model.name == "mlp"


def test_tables_and_printed_numbers_name_the_sets_that_stand_for_the_papers():
    recipe = small.small_recipe(check_recipe(FULL, "full"))
    assert recipe.tables["2"].rows == ("hard", "ls")
    assert recipe.tables["2"].columns == ("accuracy@texture", "ece + temperature-mbls")
    assert [(entry.method, entry.where) for entry in recipe.expected] == [("ls", "texture")]


def test_a_repaired_row_brings_the_method_that_it_repairs():
    recipe = small.small_recipe(check_recipe(FULL, "full"), ["hard + T"])
    assert set(recipe.methods) == {"hard + T", "hard"}


def test_the_study_and_the_papers_items_train_the_same():
    own = check_recipe(small.EXPERIMENT, "here")
    assert study_recipe(False).key == small.small_recipe(load("sc_cifar10_resnet20")).key == own.key
    assert set(own.data.also) == {"context", "texture", "mixed"}
