"""The state on disk: read back as it was, refused where it is damaged, whole after a kill; labels that came later."""

import copy
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from calibrant import Monitor, Policy
from calibrant.monitoring.state import (
    KnownLabels,
    LabelArrival,
    find_new_labels,
    parse_state,
    policy_fingerprint,
    read_labels,
    read_state,
    write_state,
)
from tests.helpers.errors import facts
from tests.helpers.watches import draw

A = "a" * 32


@pytest.fixture(scope="module")
def state(policy, batches):
    monitor = Monitor(policy, by_group="site")
    for batch in batches[:2]:
        monitor.update(batch)
    return monitor.state


@pytest.fixture(scope="module")
def entries(state, tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "watch.json"
    write_state(state, path)
    return json.loads(path.read_text())


def test_a_state_is_read_back_as_it_was(state, tmp_path):
    write_state(state, tmp_path / "watch.json")
    assert read_state(tmp_path / "watch.json") == state


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("format",), "x", ""),
        (("version",), 3, "1 2 3"),
        (("alpha",), 0, "alpha"),
        (("batches", 0, "samples"), -1, "batches.0.samples"),
        (("batches", 0, "accepted"), 10**9, "batches.0 accepted samples"),
        (("batches", 0, "sketch", "score"), "1 -2", "batches.0.sketch.score: "),
        (("batches", 0, "ids", "hashes"), "AAAA", ""),
        (("batches", 0, "ids", "waiting"), "AAAAAA==", "batches.0.ids: "),
        (("running", "batches"), 9, ""),
        (("running", "overall", "at"), [0], "running.overall: "),
        (("running", "overall", "log_sums"), [[1e400]], "running.overall.log_sums"),
        (("acknowledgements",), [{"text": "", "date": "", "batches": 0, "labels": 0, "tests": []}], "acknowledgements"),
        (("batches", 0, "fingerprint"), "../../x", "batches.0.fingerprint"),
        (("labels", 0, "errors"), 10**9, "labels.0 errors answers"),
        (("labels", 0, "batch"), A, "labels answers"),
        (("labels", 0, "answers"), 400, "labels answers"),
        (("colour",), "red", "colour"),
        (("batches", 0, "name"), "other", "checksum"),
        (("checksum",), None, "checksum"),
    ],
)
def test_a_hostile_state_is_refused_in_a_sentence(entries, place, value, told):
    data = copy.deepcopy(entries)
    inner = data
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with pytest.raises(ValueError, match=facts(*told.split())) as error:
        parse_state(data)
    assert "\n" not in str(error.value)


def test_what_is_no_json_is_refused(tmp_path):
    for content in (b"", b"\xff\xfe", b"[" * 10_000, b'{"format": NaN}', b'{"a": 1, "a": 2}'):
        path = tmp_path / "watch.json"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=facts("watch.json")):
            read_state(path)


def test_the_fingerprint_of_a_policy_survives_its_file_and_not_a_change(policy):
    data = policy.document
    assert policy_fingerprint(Policy.from_document(data)) == policy_fingerprint(policy)
    other = {k: v for k, v in data.items() if k != "checksum"} | {"calibrant": "9.9", "summary": "other words"}
    assert policy_fingerprint(Policy.from_document(other)) == policy_fingerprint(policy)
    changed = copy.deepcopy(other)
    changed["threshold"]["accept_from"] = 0.99
    assert policy_fingerprint(Policy.from_document(changed)) != policy_fingerprint(policy)


def arrival(answers, errors, **groups):
    parts = {name: KnownLabels(answers=n, errors=k) for name, (n, k) in groups.items()}
    return LabelArrival(batch=A, answers=answers, errors=errors, groups=parts)


def test_only_new_labels_count():
    new = find_new_labels(arrival(10, 2, north=(10, 2)), arrival(25, 3, north=(20, 3), south=(5, 0)))
    assert new == arrival(15, 1, north=(10, 1), south=(5, 0))
    assert find_new_labels(arrival(10, 2), arrival(10, 1)) is None
    assert find_new_labels(arrival(10, 2), arrival(12, 5)) is None


def test_a_state_that_could_not_be_read_again_is_not_written(state, tmp_path, monkeypatch):
    path = tmp_path / "watch.json"
    write_state(state, path)
    monkeypatch.setattr("calibrant.monitoring.state.LARGEST", path.stat().st_size - 1)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="bytes"):
        write_state(state, path)
    assert path.read_bytes() == content


def test_a_sample_takes_eleven_bytes_and_four_thirds_of_four_while_it_waits(policy, tmp_path):
    for known, size in ((1.0, 11), (0.0, 17)):
        Monitor(policy).update(draw(5000, 3, known=known)).save(tmp_path / "watch.json")
        assert (tmp_path / "watch.json").stat().st_size < 5000 * size + 12_000
    Monitor(policy).update(draw(5000, 3, ids=False), "monday").save(tmp_path / "watch.json")
    assert (tmp_path / "watch.json").stat().st_size < 12_000


def write(path, text):
    path.write_text(text)
    return path


def test_names_numbers_and_gaps(tmp_path):
    named = write(tmp_path / "a.csv", "id,label\nx1,dog\nx2,\n7,cat\n")
    assert read_labels(named, 2, ("cat", "dog")) == {"x1": 1, "7": 0}
    assert read_labels(write(tmp_path / "b.csv", "labels,ids\n2,1\n0,2\n"), 3, None) == {"1": 2, "2": 0}
    pa.parquet.write_table(pa.table({"id": [5], "label": [1]}), tmp_path / "c.parquet")
    assert read_labels(tmp_path / "c.parquet", 2, ("cat", "dog")) == {"5": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,label\n1,cow\n", "'cow' 2"),
        ("id,label\n1,5\n", "'5' 2"),
        ("id,label\n1,cat\n1,dog\n", "id 1"),
        ("id,truth\n1,cat\n", "'label' id, truth"),
        ("id,label\n1,\n", "labels"),
        ("", "empty"),
        (",cat\n", "'id'"),
        ("id,label\n,cat\n", "id"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path, text, told):
    path = write(tmp_path / "labels.csv", text)
    with pytest.raises(ValueError, match=facts(str(path), *told.split())) as error:
        read_labels(path, 2, ("cat", "dog"))
    assert "\n" not in str(error.value)


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=facts(".csv", ".txt")):
        read_labels(write(tmp_path / "labels.txt", "id,label"), 2, None)
