"""A pass in pieces gives what a pass over the whole gives, for everything that reads predictions."""

from dataclasses import asdict

import numpy as np
import pyarrow.parquet as pq
import pytest

from calibrant import Monitor, Policy, Predictions, check
from calibrant.policy import apply_policy
from calibrant.predictions import LOCAL, OnRay
from tests.helpers.errors import facts
from tests.helpers.pieces import InPieces

SIZES = (701, 1, 350, 1203, 745)  # of the shards, of which the second holds one row of a group that no other has


def draw(classes=4, seed=0, ids=True, ignored=False, scale=3.0):
    rng = np.random.default_rng(seed)
    rows = sum(SIZES)
    logits = scale * rng.standard_normal((rows, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    if ignored:
        labels[::17] = -100
    site = rng.choice(["north", "south"], rows)
    site[SIZES[0]] = "east"
    columns = {"groups": {"site": site}} | ({"ids": np.array([f"n{seed}-{i}" for i in range(rows)])} if ids else {})
    return Predictions.from_logits(logits, labels, class_names=[*"wxyz"][:classes], **columns)


def in_shards(folder, predictions, suffix="parquet"):
    """The same in files of different sizes."""
    folder.mkdir(exist_ok=True)
    start = 0
    for number, size in enumerate(SIZES):
        predictions.samples(slice(start, start + size)).save(folder / f"part{number}.{suffix}")
        start += size
    return Predictions.open(str(folder / f"*.{suffix}"), groups=["site"] if suffix == "csv" else None)


@pytest.fixture(scope="module")
def policy():
    return Policy.fit(draw(seed=7), 0.1)


def name_batches(piece):
    for start, batch in piece.batches():
        yield start, batch.ids[0]


# ---- the engine itself ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_pieces_know_where_they_lie(suffix, tmp_path):
    opened = in_shards(tmp_path, draw(), suffix)
    pieces = InPieces().pieces(opened)
    assert [piece.start for piece in pieces] == [0, 701, 702, 1052, 2255]
    assert [len(piece.predictions) for piece in pieces] == list(SIZES)
    assert InPieces().count_rows(opened) == LOCAL.count_rows(opened) == sum(SIZES)
    for engine in (LOCAL, InPieces()):
        for start, name in engine.run(name_batches, opened):
            assert name == f"n0-{start}"


def test_many_files_are_few_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.predictions.passes.MOST_PIECES", 2)
    assert [piece.start for piece in InPieces().pieces(in_shards(tmp_path, draw()))] == [0, 1052]


def test_repeated_ids_are_counted_across_pieces(tmp_path, monkeypatch):
    given = draw()
    ids = given.ids.copy()
    ids[2000:2040], ids[5] = ids[100], ids[4]
    repeated = Predictions.from_logits(given.logits, given.labels, ids=ids, groups=given.groups)
    opened = in_shards(tmp_path, repeated)
    assert InPieces().count_repeats(opened) == repeated.repeats == 41
    monkeypatch.setattr("calibrant.predictions.passes.MOST_HASHES", 700)  # so that there are several passes
    assert InPieces().count_repeats(opened) == 41
    with pytest.raises(ValueError, match=facts("41", "3,000", "--repeats first")):
        check(opened, "ece <= 0.9", engine=InPieces())


def test_predictions_in_memory_are_one_piece():
    given = draw()
    (piece,) = OnRay().pieces(given)
    assert piece.is_whole
    assert list(OnRay().run(lambda piece: [len(piece.predictions)], given)) == [3000]


# ---- what reads predictions -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("ignored", [False, True])
def test_a_check_in_pieces(ignored, policy, tmp_path):
    opened = in_shards(tmp_path, draw(ignored=ignored))
    given = draw(ignored=ignored)
    other = Predictions.from_logits(given.logits * 1.2, given.labels, ids=given.ids, groups=given.groups)
    baseline = in_shards(tmp_path / "other", other)
    requirements = ("ece <= 0.05", "accuracy >= 60%", "policy.risk <= 12%", "policy.coverage >= 1%")
    for words, further in (({"groups": "site"}, ()), ({"baseline": baseline}, ("nll no worse by 0.1",))):
        results = [
            check(opened, *requirements, *further, policy=policy, engine=engine, replicates=50, **words)
            for engine in (LOCAL, InPieces())
        ]
        for whole, pieces in zip(*(result.requirements for result in results), strict=True):
            assert (whole.group, whole.status, whole.samples, whole.needed) == (
                pieces.group, pieces.status, pieces.samples, pieces.needed,
            )  # fmt: skip
            for name in ("value", "low", "high"):
                assert getattr(whole, name) == pytest.approx(getattr(pieces, name), rel=1e-9, abs=1e-12, nan_ok=True)


def test_a_check_of_images_by_group_in_pieces(tmp_path):
    """Images are numbered within their group, also where a group begins in a later piece."""
    rng = np.random.default_rng(3)
    logits = 2 * rng.standard_normal((sum(SIZES), 3, 2, 2)).astype(np.float32)
    labels = rng.integers(0, 4, (len(logits), 2, 2))
    given = Predictions.from_logits(
        logits, labels, groups={"site": rng.choice(["a", "b"], len(logits))}, kind="segmentation", ignore_index=3
    )
    opened = in_shards(tmp_path, given, "npz")
    whole, pieces = (
        check(opened, "ece <= 0.4", "nll <= 9", groups="site", engine=engine, replicates=30).document
        for engine in (LOCAL, InPieces())
    )
    for ours, theirs in zip(whole["requirements"], pieces["requirements"], strict=True):
        assert ours["samples"] == theirs["samples"]
        assert [ours[name] for name in ("value", "low", "high")] == pytest.approx(
            [theirs[name] for name in ("value", "low", "high")], rel=1e-9
        )


@pytest.mark.parametrize(
    "asked",
    [{}, {"by": "site"}, {"by_class": True}, {"sets": 0.9, "set_method": "aps", "set_randomised": True}],
    ids=["plain", "groups", "classes", "sets"],
)
def test_decisions_in_pieces(asked, tmp_path):
    fitted = Policy.fit(draw(seed=7), target_risk=0.1, **asked)
    opened = in_shards(tmp_path, draw())
    outcomes = []
    for name, engine in (("whole", LOCAL), ("pieces", InPieces())):
        for suffix in ("parquet", "csv", "npz"):
            outcome = apply_policy(fitted, opened, tmp_path / f"{name}.{suffix}", engine=engine)
        outcomes.append(outcome.to_dict())
        assert list(outcome.groups) == sorted(outcome.groups)
    assert outcomes[0] == outcomes[1]
    assert pq.read_table(tmp_path / "whole.parquet").equals(pq.read_table(tmp_path / "pieces.parquet"))
    assert (tmp_path / "whole.csv").read_bytes() == (tmp_path / "pieces.csv").read_bytes()
    whole, pieces = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "pieces"))
    assert set(whole) == set(pieces)
    for name in whole:
        np.testing.assert_array_equal(whole[name], pieces[name])


def test_decisions_that_fail_leave_no_file(policy, tmp_path):
    opened = in_shards(tmp_path / "shards", draw())
    (tmp_path / "shards" / "part3.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=facts("part3.parquet")):
        apply_policy(policy, opened, tmp_path / "decisions.parquet", engine=InPieces())
    assert [path.name for path in tmp_path.iterdir()] == ["shards"]


@pytest.mark.parametrize("ids", [True, False])
def test_a_watched_batch_in_pieces(ids, policy, tmp_path):
    opened = in_shards(tmp_path, draw(seed=3, ids=ids, ignored=True, scale=2.0))
    watches = []
    for engine in (LOCAL, InPieces()):
        watch = Monitor(policy, by_group="site")
        watch.add(watch.count(draw(seed=5), engine=engine), "before")
        again = watch.count(opened, engine=engine)
        watch.add(again, "now")
        watches.append((again, watch.state.model_dump(mode="json", exclude_none=True)))
    (whole, state), (pieces, other_state) = watches
    assert (whole.looks, whole.samples, whole.seen) == (pieces.looks, pieces.samples, pieces.seen)
    assert asdict(whole.labelled) == asdict(pieces.labelled)
    for batch in (*state["batches"], *other_state["batches"]):
        batch["implied_errors"] = pytest.approx(batch["implied_errors"], rel=1e-12)
    assert state == other_state


def test_a_batch_of_which_samples_were_seen_in_pieces(policy, tmp_path):
    """The samples that new priors are estimated on are the first that were not seen, wherever they lie."""
    given = draw(seed=3, scale=2.0)
    opened = in_shards(tmp_path, given)
    shifts = []
    for engine in (LOCAL, InPieces()):
        watch = Monitor(policy)
        watch.add(watch.count(given.samples(slice(0, 2300))), "before")
        counts = watch.count(opened, engine=engine)
        assert (counts.seen, counts.samples) == (2300, 700)
        shifts.append(counts.shift)
    np.testing.assert_array_equal(shifts[0].priors, shifts[1].priors)
