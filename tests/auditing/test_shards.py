"""An audit whose shards are counted by a real Ray cluster: what one pass over all of them finds."""

import json
import os
import zlib

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.auditing.collect import collect, collect_part
from calibrant.auditing.shards import Offsets, count_samples, find_offsets, join_crc32, merge, sizes_in_headers
from calibrant.base.cluster import connect
from calibrant.cli import main
from calibrant.metrics import ece
from calibrant.predictions import OnRay, Piece
from calibrant.predictions.rows import keep_rows
from tests.helpers.object_store import serving
from tests.helpers.pieces import InPieces
from tests.helpers.ray_nodes import nodes

pytest.importorskip("ray", reason="pip install 'calibrant[cluster]'")
from tests.helpers.errors import facts

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),  # Ray's own words to itself
]

SIZES = (701, 1, 350, 1203)


def arrays(seed=0, classes=7, text=True):
    rng = np.random.default_rng(seed)
    count = sum(SIZES)
    logits = 3 * rng.standard_normal((count, classes))
    logits[5] = logits[900] = [9, 0, 0, 0, 0, 0, 0][:classes]  # equally confident errors: the first comes first
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    labels[[5, 900]] = 1
    site = rng.choice(["b", "a", "c"], count)
    ids = np.array([f"n{i}" for i in range(count)]) if text else np.arange(count)
    return {"logits": logits, "labels": labels, "ids": ids, "groups": {"site": site}}


def shards(folder, given, **facts):
    """Files of different sizes, whose natural order is not that of their names."""
    start = 0
    for number, size in zip((2, 9, 10, 30), SIZES, strict=True):
        rows = slice(start, start + size)
        groups = {name: values[rows] for name, values in given["groups"].items()}
        columns = {name: given[name][rows] for name in ("logits", "labels", "ids") if name in given}
        Predictions.from_logits(**columns, groups=groups, **facts).save(folder / f"part{number}.parquet")
        start += size
    return Predictions.open(str(folder / "*.parquet"))


def same(found, expected):
    """Counts and what was kept to the last digit, sums up to rounding."""
    assert (found.rows, found.samples, found.impossible) == (expected.rows, expected.samples, expected.impossible)
    assert (found.label_crc, found.id_crc, found.value_crc) == (expected.label_crc, expected.id_crc, expected.value_crc)
    assert (found.worst, found.errors) == (expected.worst, expected.errors)
    assert found.remarks == expected.remarks
    assert found.repeats.repeats == expected.repeats.repeats
    for ours, theirs in ((found.judged, expected.judged), (found.logits, expected.logits)):
        for one, other in zip(ours.columns(), theirs.columns(), strict=True):
            np.testing.assert_array_equal(one, other)
    for name in ("cells", "base_counts"):
        assert bool((getattr(found.sketch, name) == getattr(expected.sketch, name)).all())
    values = expected.sketch.compute()
    assert found.sketch.compute() == pytest.approx(values, rel=1e-12, abs=1e-15)
    tables = [(found.overall, expected.overall), (found.by_class, expected.by_class)]
    for name, (levels, table) in expected.groups.items():
        assert list(found.groups[name][0].codes) == sorted(levels.codes)
        order = [levels.codes[value] for value in sorted(levels.codes)]
        np.testing.assert_array_equal(found.groups[name][1].counts, table.counts[order])
        np.testing.assert_allclose(found.groups[name][1].sums, table.sums[order], rtol=1e-12)
    for ours, theirs in tables:
        np.testing.assert_array_equal(ours.counts, theirs.counts)
        np.testing.assert_allclose(ours.sums, theirs.sums, rtol=1e-12)
        np.testing.assert_allclose(ours.squares, theirs.squares, rtol=1e-12)
    assert bool((found.classwise.hits == expected.classwise.hits).all())
    # Probabilities of float32 logits are added up in float32, chunk by chunk: where chunks end, rounding differs.
    exact = expected.logits.columns()[0].dtype == np.float64
    close = {"rtol": 1e-12} if exact else {"rtol": 0, "atol": 1e-5}
    np.testing.assert_allclose(found.classwise.by_class(), expected.classwise.by_class(), **close)
    if expected.clusters is not None:
        np.testing.assert_array_equal(found.clusters.counts, expected.clusters.counts)
        np.testing.assert_allclose(found.clusters.proper, expected.clusters.proper, rtol=1e-12)


@pytest.fixture(scope="module")
def cluster():
    """Connected once: workers then know what they have imported from one test to the next."""
    with nodes(2) as found, connect("the tests", found.address):
        yield found


@pytest.mark.slow
def test_shards_on_two_nodes_are_one_pass(cluster, tmp_path):
    given = arrays()
    told = []
    engine = OnRay(cluster.address)
    found = collect(
        shards(tmp_path, given), progress=lambda what, done, total: told.append((done, total)), engine=engine
    )
    assert told == [(done, len(SIZES)) for done in range(len(SIZES) + 1)]
    expected = collect(Predictions.from_logits(**given))
    same(found, expected)
    probabilities = np.exp(given["logits"])
    probabilities /= probabilities.sum(1, keepdims=True)
    exact = ece(probabilities.max(1), probabilities.argmax(1) == given["labels"])
    assert found.sketch.compute()["ece"] == pytest.approx(exact, abs=1e-12)


@pytest.mark.slow
def test_a_label_that_is_ignored_by_default_changes_no_number(cluster, tmp_path):
    """Sizes are taken from the headers, and the pass is made again where they turn out to be too large."""
    given = arrays()
    given["labels"][[3, 720, 800]] = -100
    same(collect(shards(tmp_path, given), engine=OnRay(cluster.address)), collect(Predictions.from_logits(**given)))


@pytest.mark.slow
def test_a_damaged_shard_is_one_sentence_that_names_it(cluster, tmp_path):
    opened = shards(tmp_path, arrays())
    file = tmp_path / "part10.parquet"
    body = bytearray(file.read_bytes())
    body[40:4000] = bytes(3960)
    stamp = file.stat()
    file.write_bytes(body)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(ValueError, match=facts("part10.parquet")) as caught:
        collect(opened, engine=OnRay(cluster.address))
    assert "\n" not in str(caught.value)


# --- without a cluster: the parts themselves -------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "npz", "npy", "safetensors"])
def test_sizes_are_those_of_the_headers(suffix, tmp_path, monkeypatch):
    """Of 5 and 3 samples, without reading a label; a header says nothing of the pixels that count."""
    logits, image = np.eye(5, 3), np.zeros((2, 3, 4, 4))
    paths = [str(tmp_path / f"{name}_logits.{suffix}") for name in "abc"]
    Predictions.from_logits(logits, np.arange(5) % 3).save(paths[0])
    Predictions.from_logits(logits[:3], np.arange(3)).save(paths[1])
    Predictions.from_logits(image, image[:, 0].astype(int), kind="segmentation", ignore_index=255).save(paths[2])
    pieces = InPieces().pieces(Predictions.open(paths[:2]))
    monkeypatch.setattr("calibrant.predictions.stores.FileStore.blocks", None)
    assert [(piece.number, piece.start, piece.is_whole) for piece in pieces] == [(0, 0, False), (1, 5, False)]
    assert sizes_in_headers(pieces) == [(5, 5), (3, 3)]
    assert find_offsets([(5, 5), (3, 3)]) == [Offsets(0, 0, 8), Offsets(5, 5, 8)]
    assert sizes_in_headers(InPieces().pieces(Predictions.open(paths[2]))) is None


def test_samples_are_counted_by_group():
    """Of images of two by two with an ignored position: rows, and positions that count."""
    labels = np.array([[[0, 9], [1, 1]], [[1, 1], [0, 0]], [[9, 9], [9, 0]]])
    images = Predictions.from_logits(
        np.zeros((3, 2, 2, 2)), labels, groups={"site": ["a", "b", "a"]}, kind="segmentation", ignore_index=9
    )
    assert list(count_samples(Piece(images))) == [{"": (3, 8)}]
    assert list(count_samples(Piece(images), "site")) == [{"a": (2, 4), "b": (1, 4)}]


@pytest.mark.parametrize("text", [True, False], ids=["text", "numbers"])
def test_ignored_labels_and_small_samples(text, tmp_path, monkeypatch):
    """Kept samples are those of one pass also where parts keep less than they see."""
    monkeypatch.setattr("calibrant.auditing.collect.LOGITS_KEPT", 40)
    given = arrays(text=text)
    given["labels"][100:720] = 9  # all of the second shard is ignored
    opened = shards(tmp_path, given, ignore_index=9)
    expected = collect(Predictions.from_logits(**given, ignore_index=9))
    found = collect(opened, engine=InPieces())
    assert len(expected.logits.columns()[1]) == 40
    same(found, expected)


@pytest.mark.parametrize("absent", [(0,), (1, 3), (0, 1, 3)])
def test_shards_of_which_no_row_is_read(absent, tmp_path):
    """As where a shard has none of the rows of a split: nothing comes of it, wherever it stands."""
    given = arrays()
    given["ids"][800:900] = given["ids"][1000:1100]
    opened = shards(tmp_path, given)
    mask = ~np.isin(np.repeat(range(len(SIZES)), SIZES), absent)
    mask[::3] = False
    expected = collect(Predictions.from_logits(**given).samples(mask).load())
    found = collect(Predictions._of(keep_rows(opened._store, mask)), engine=InPieces())
    same(found, expected)


def test_images(tmp_path):
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((sum(SIZES), 3, 2, 5)).astype(np.float32)
    labels = rng.integers(0, 4, (len(logits), 2, 5))
    given = {"logits": logits, "labels": labels, "groups": {"site": rng.choice(["x", "y"], len(logits))}}
    opened = shards(tmp_path, given, ignore_index=3, kind="segmentation")
    same(
        collect(opened, engine=InPieces()),
        collect(Predictions.from_logits(**given, ignore_index=3, kind="segmentation")),
    )


def test_weights(tmp_path):
    given = arrays()
    weight = np.random.default_rng(2).gamma(1.0, 1.0, sum(SIZES))
    start = 0
    for number, size in enumerate(SIZES):
        rows = slice(start, start + size)
        groups = {"site": given["groups"]["site"][rows]}
        part = Predictions.from_logits(given["logits"][rows], given["labels"][rows], weight=weight[rows], groups=groups)
        part.save(tmp_path / f"{number}.npz")
        start += size
    found = collect(Predictions.open(str(tmp_path / "*.npz")), engine=InPieces())
    expected = collect(Predictions.from_logits(given["logits"], given["labels"], weight=weight, groups=given["groups"]))
    assert found.warnings == expected.warnings
    assert f"{weight.min():.4g} to {weight.max():.4g}" in found.warnings[0]
    for name, value in expected.summary().metrics().items():
        assert found.summary().measure(name) == pytest.approx(value, rel=1e-12), name
    for ours, theirs in zip(found.judged.columns(), expected.judged.columns(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_checksums_do_not_depend_on_the_shards(tmp_path):
    given = arrays()
    opened = shards(tmp_path, given)
    whole = collect(opened)
    found = collect(opened, engine=InPieces())
    assert found.id_crc == whole.id_crc == zlib.crc32("".join(f"{i}\n" for i in given["ids"]).encode())
    assert found.label_crc == zlib.crc32(given["labels"].tobytes())
    data = np.random.default_rng(0).bytes(100_003)
    for cut in (0, 1, 777, 100_003):
        assert join_crc32(zlib.crc32(data[:cut]), zlib.crc32(data[cut:]), len(data) - cut) == zlib.crc32(data)


def test_parts_must_hold_the_same(tmp_path):
    first, second = (
        next(collect_part(Piece(Predictions.from_logits(**arrays(text=text))), [], [Offsets(0, 0, 9)]))
        for text in (1, 0)
    )
    with pytest.raises(ValueError, match=facts("ids", "int64", "text")):
        merge([first, second])


def test_nothing_that_counts(tmp_path):
    given = arrays()
    given["labels"][:] = 9
    with pytest.raises(ValueError, match=facts("ignored")):
        collect(shards(tmp_path, given, ignore_index=9), engine=InPieces())


@pytest.mark.slow
def test_the_command_on_a_cluster_and_an_object_store_says_what_it_says_on_one_machine(cluster, tmp_path, capsys):
    shards(tmp_path, arrays())
    found = []
    with serving() as (store, options):
        for file in tmp_path.iterdir():
            store.put(f"lake/runs/{file.name}", file.read_bytes())
        far = [f"s3://anonymous@lake/runs/*.parquet{options}", "--engine", "ray", "--address", cluster.address]
        for words in ([str(tmp_path / "*.parquet")], far):
            with pytest.raises(SystemExit) as stop:
                main(["audit", *words, "--json", "-q", "-o", "none", "--replicates", "50"])
            assert stop.value.code == 0
            found.append(json.loads(capsys.readouterr().out))
    one, ray = (document["models"][0] for document in found)
    assert [row["name"] for row in ray["groups"][0]["rows"]] == ["a", "b", "c"]
    for ours, theirs in zip(ray["metrics"], one["metrics"], strict=True):
        assert ours["name"] == theirs["name"]
        for key in ("value", "low", "high"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-9, abs=1e-12)
    assert ray["verdict"] == one["verdict"]
    assert ray["findings"] == one["findings"]
