from calibrant.experiments.demo_study import study_recipe
from calibrant.experiments.papers.small import small_recipe
from calibrant.experiments.small_scenes import EXPERIMENT
from calibrant.training import check_recipe, load


def test_the_study_and_the_papers_items_train_the_same():
    own = check_recipe(EXPERIMENT, "here")
    assert study_recipe(False).key == small_recipe(load("sc_cifar10_resnet20")).key == own.key
    assert set(own.data.also) == {"context", "texture", "mixed"}
