"""What a run is prepared with."""

import numpy as np
import pytest

from calibrant.data import Vocabulary, learn_vectors, read
from calibrant.data.text import tokens
from calibrant.training import Task, load, load_model, train
from calibrant.training.classification import Classification
from calibrant.training.recipe import check_recipe
from tests.helpers import recipe_data
from tests.helpers.errors import facts


def test_word_vectors_start_the_embedding(tmp_path):
    """Words that the file has keep its numbers through training: vectors that are given are frozen."""
    data = recipe_data.written("newsgroups", tmp_path / "data")
    words = sorted({word for sample in read(data, "train") for word in tokens(sample.input)})
    lines = [f"{word} {i}.5 {-i}.25 0.125" for i, word in enumerate(words)]
    (tmp_path / "glove.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = check_recipe(
        {
            "data": {
                "layout": "newsgroups",
                "text": {"vocabulary": 50, "length": 30, "vectors": str(tmp_path / "glove.txt"), "dimensions": 3},
            },
            "model": {"name": "gpcn"},
            "optimiser": {"name": "adam", "rate": 0.01},
            "training": {"batch_size": 2, "max_steps": 2},
        },
        "here",
    )
    train(recipe, tmp_path / "run", data=str(data))
    model, shape, classes = load_model(tmp_path / "run")
    assert shape == [30]
    table = model.embedding.weight
    first = table[2].tolist()  # 0 and 1 are padding and unknown words
    assert [abs(first[0]) % 1, abs(first[1]) % 1, first[2]] == [0.5, 0.25, 0.125]
    assert len(classes) > 1


def test_learned_vectors_start_the_embedding(tmp_path):
    """They are those of the training texts, and frozen as those of a file."""
    data = recipe_data.written("newsgroups", tmp_path / "data")
    text = {"vocabulary": 40, "length": 30, "learn_vectors": True, "dimensions": 5}
    settings = {
        "data": {"layout": "newsgroups", "text": text},
        "model": {"name": "gpcn"},
        "optimiser": {"name": "adam", "rate": 0.01},
        "training": {"batch_size": 2, "max_steps": 2},
    }
    train(check_recipe(settings, "here"), tmp_path / "run", data=str(data))
    messages = read(data, "train")
    vocabulary = Vocabulary.build((sample.input for sample in messages), size=40)
    rows = np.stack([vocabulary.encode(sample.input, 30) for sample in messages])
    expected = learn_vectors(rows, len(vocabulary), 5)
    np.testing.assert_allclose(load_model(tmp_path / "run")[0].embedding.weight.detach(), expected, atol=1e-6)
    settings["data"]["text"] = text | {"vectors": "glove.txt"}
    with pytest.raises(ValueError, match=facts("learn_vectors")):
        check_recipe(settings, "here")


@pytest.mark.parametrize("name", ["small/camvid", "small/newsgroups_gpcn"])
def test_mixing_is_refused_where_it_would_do_nothing(name, tmp_path):
    few = {"small/camvid": [], "small/newsgroups_gpcn": ["data.hold_out.count=2"]}[name]
    recipe = load(name, ["mixing.name=cutmix", "training.batch_size=2", *few])
    data = recipe_data.written(recipe.data.layout, tmp_path / "data")
    with pytest.raises(ValueError, match=facts("mixing")):
        train(recipe, tmp_path / "run", data=str(data))


def test_a_task_says_everything_that_the_loop_asks():
    asked = {"check", "evaluate", "loss", "model", "parts", "rehearse", "remember", "terms", "validate"}
    assert Task.__abstractmethods__ == asked
    with pytest.raises(TypeError):
        Task()


def test_samples_are_all_taken_unless_a_task_says_otherwise():
    sets = object()
    assert Classification().select(sets) is sets
