from types import SimpleNamespace

import pytest

from calibrant.experiments.papers import sc_runs
from calibrant.experiments.tables.cells import Column


def test_words_of_numbers():
    assert sc_runs.count_words([1.0, 2.0, 3.0], [1.5, 2.0, 2.5], "higher") == "higher in 1 of 3 runs"
    assert sc_runs.count_words([1.0, 2.0, 3.0], [0.5, 1.0, 3.0], "lower") == "lower in 2 of 3 runs"
    assert sc_runs.spread_words([0.1, 0.3], Column("aurc")) == "0.2000 ± 0.1414"
    assert sc_runs.spread_words([0.25], Column("accuracy")) == "25.00%"
    assert sc_runs.spread_words([], Column("aurc")) == "no number"


def test_what_won_is_said_with_its_reading():
    norms = [SimpleNamespace(p_=p, centre=c) for p, c in ((3, True), (3, True), (None, True), (4, False))]
    assert sc_runs.winner_words(norms) == (
        "the normalised largest logit, centred, p = 3 in 2 of 4 runs; the MSP (no p ranks better) in 1 of 4 runs; "
        "the normalised largest logit, not centred, p = 4 in 1 of 4 runs"
    )


def test_the_better_reading_is_said():
    sets = [SimpleNamespace(areas={True: a, False: b}) for a, b in ((0.1, 0.2), (0.3, 0.2), (0.1, 0.15))]
    assert sc_runs.reading_words(sets) == "the one of logits centred ranks the validation data better in 2 of 3 runs"
    assert sc_runs.reading_words(sets[1:2]).startswith("the one of logits not centred ranks")


def test_runs_of_other_methods_are_refused(bench):
    with pytest.raises(
        ValueError, match=r"drawn from runs of 'ce' and 'ls, alpha=0.2', and the runs given are of ce, ls"
    ):
        sc_runs.smoothing_runs(bench, "sc_imagenet_resnet50", methods=["ls, alpha=0.9"])


def test_runs_without_a_shifted_set_are_refused(tmp_path):
    runs = SimpleNamespace(folders={"ce": {0: tmp_path}})
    with pytest.raises(ValueError, match="the runs have neither of"):
        sc_runs.shifted_name(runs)


def test_a_table_of_one_seed_says_so():
    table = sc_runs.seeds_table("t", [Column("aurc")], {"a": [[0.2]], "b": [[0.1]]})
    assert table.note.startswith("Of one run.")
    assert [line.cells[0].best for line in table.rows] == [False, True]
