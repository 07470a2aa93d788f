import numpy as np
import pytest

from calibrant.experiments.papers import Workbench, find_item, rankings, workbench
from calibrant.experiments.papers.rankings import DrawnPixels, choose_image, mean_wrong_rank
from calibrant.experiments.tables.cells import Column
from tests.helpers.mask_runs import PLAIN as MASKS
from tests.helpers.mask_runs import trained_runs


def test_words_of_numbers():
    assert rankings.spread_words([0.1, 0.3], Column("aurc")) == "0.2000 ± 0.1414"
    assert rankings.spread_words([0.25], Column("accuracy")) == "25.00%"
    assert rankings.spread_words([], Column("aurc")) == "no number"


def test_runs_of_other_methods_are_refused(bench):
    with pytest.raises(ValueError, match=r"needs runs of 'ls, alpha=0.9', and the runs given are of ce, ls"):
        rankings.smoothing_runs(bench, "sc_imagenet_resnet50", methods=["ls, alpha=0.9"])


def test_a_table_of_one_seed_says_so():
    table = rankings.seeds_table("t", [Column("aurc")], {"a": [[0.2]], "b": [[0.1]]})
    assert table.note.startswith("Of one run.")
    assert [line.cells[0].best for line in table.rows] == [False, True]


def test_the_mean_rank_of_wrong_pixels_is_within_their_image():
    random = np.random.default_rng(0)
    image, correct = random.integers(0, 4, 90), random.random(90) < 0.7
    score = np.round(random.random(90), 1)  # with ties
    ranks = [
        np.mean([score[j] > score[i] for j in range(90) if image[j] == image[i]])
        for i in range(90) if not correct[i]
    ]  # fmt: skip
    pixels = DrawnPixels(image, correct, {"confidence": score})
    assert mean_wrong_rank(pixels, "confidence") == pytest.approx(np.mean(ranks))


def test_the_image_shown_is_the_first_with_enough_errors(monkeypatch):
    right = {"a": [1, 1, 1, 0, 0, 1], "b": [1, 1, 0, 1, 0, 0]}  # images 0, 0, 1, 1, 2, 2
    image = np.repeat([0, 1, 2], 2)
    monkeypatch.setattr(
        "calibrant.experiments.papers.rankings.read_drawn_pixels",
        lambda runs, method, seed: DrawnPixels(image, np.array(right[method], bool), {}),
    )
    assert choose_image(None, ("a", "b"), 0) == 1
    assert choose_image(None, ("a",), 0) == 1
    right |= {"a": [0, 0, 1, 0, 0, 1], "b": [0, 1, 1, 1, 0, 1]}
    assert choose_image(None, ("a", "b"), 0) == 2  # of the first image one method gets all wrong
    right["a"] = [1, 1, 1, 1, 1, 1]
    assert choose_image(None, ("a",), 0) == 0  # nobody has any: still one is shown


def test_figure_10_has_both_networks_and_both_rankings(tmp_path, monkeypatch):
    monkeypatch.setattr(workbench, "MASKS", MASKS)
    runs = trained_runs(tmp_path, alpha=0.2)
    made = find_item("sc.fig10").make(Workbench(tmp_path / "bench", small=True, runs=list(runs.values())))
    titles = [axis.get_title(loc="left") for axis in made.figures["fig10"].axes]
    assert [title.partition(":")[0] for title in titles if ":" in title] == ["CE", "LS, alpha = 0.2"] * 2
    (ce, ls) = made.tables["fig10-numbers"].rows
    assert (ce.method, ls.method) == ("CE", "LS, alpha = 0.2")
    assert all(0 < cell.mean < 1 for line in (ce, ls) for cell in line.cells)
