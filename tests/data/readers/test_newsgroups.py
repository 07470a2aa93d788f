"""20 Newsgroups: odd messages, and the parts that are removed."""

import os

import numpy as np
import pytest
from sklearn.datasets import _twenty_newsgroups as theirs

from calibrant.data import read, recognise
from calibrant.data.readers.newsgroups import newsgroups, strip_parts
from tests.helpers.errors import facts
from tests.helpers.reader_data import MESSAGE, newsgroup_messages, odd_in


@pytest.fixture
def messages(tmp_path):
    return newsgroup_messages(tmp_path)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_messages_with_their_oddities(messages, on_error):
    assert recognise(messages)[0].name == "newsgroups"
    data = read(messages, "train", on_error=on_error)
    assert data.classes == ("alt.atheism", "rec.autos", "sci.space")  # those of both splits
    start = "20news-bydate-train"
    assert data.ids == (
        *(f"{start}/alt.atheism/7", f"{start}/alt.atheism/8"),
        *(f"{start}/sci.space/10", f"{start}/sci.space/2"),
    )
    assert data.labels.tolist() == [0, 0, 2, 2]
    assert data[0].input == "caf\xe9\r\n"
    assert data[2].input == "caf\xe9"
    assert data[3].input == MESSAGE
    assert data.report.skipped == ()
    assert odd_in(data) == {
        "carriage returns": (1, (f"{start}/alt.atheism/7",)),
        "empty file": (1, (f"{start}/alt.atheism/8",)),
        "not UTF-8, read as latin-1": (1, (f"{start}/sci.space/10",)),
    }


def test_the_original_collection_is_one_split(tmp_path):
    for group, number in (("sci.space", 3), ("rec.autos", 2)):
        for i in range(number):
            (tmp_path / "20_newsgroups" / group).mkdir(parents=True, exist_ok=True)
            (tmp_path / "20_newsgroups" / group / str(i)).write_text(f"From: a\n\n{group} {i}")
    assert recognise(tmp_path)[0].name == "newsgroups"
    data = read(tmp_path, "all", remove=["headers"])
    assert data.classes == ("rec.autos", "sci.space")
    assert data.labels.tolist() == [0, 0, 1, 1, 1]
    assert data[4].input == "sci.space 2"


def test_parts_are_removed_also_after_take(messages):
    data = newsgroups(messages, "train", remove=("headers", "footers", "quotes")).take([3])
    assert data[0].input == "\nTruly so.\n"
    data = newsgroups(messages, "test", remove=("headers", "quotes"))
    assert odd_in(data) == {
        "empty once parts are removed": (2, ("20news-bydate-test/rec.autos/1", "20news-bydate-test/sci.space/3"))
    }
    for wrong in ("headers", ["signature"]):
        with pytest.raises(ValueError, match=facts("headers", "footers")):
            newsgroups(messages, "test", remove=wrong)


RULES = {
    "headers": theirs.strip_newsgroup_header,
    "footers": theirs.strip_newsgroup_footer,
    "quotes": theirs.strip_newsgroup_quoting,
}


@pytest.mark.parametrize("part", RULES)
def test_the_rules_are_those_of_scikit_learn(part):
    pieces = ["a: b", "", "> quoted", "He wrote:", "---", "plain words", "  ", "| bar", "- -", "In article 5"]
    rng = np.random.default_rng(0)
    for count in range(60):
        text = "\n".join(rng.choice(pieces, count % 9))
        assert strip_parts(text, (part,)) == RULES[part](text), repr(text)
    assert strip_parts(MESSAGE, (part,)) == RULES[part](MESSAGE)


def test_files_that_cannot_be_read(messages):
    path = messages / "20news-bydate-test" / "sci.space" / "3"
    os.truncate(path, 2**26 + 1)  # takes no room on disk
    with pytest.raises(ValueError, match=facts("3", "67108864")):
        newsgroups(messages, "test")
    data = newsgroups(messages, "test", on_error="skip")
    assert data.ids == ("20news-bydate-test/rec.autos/1",)
    ((_, times, (place,)),) = data.report.skipped
    assert times == 1
    assert place.startswith("20news-bydate-test/sci.space/3 (")
    assert "67108865" in place
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match=facts("sci.space/3")):
        newsgroups(messages, "test")
    (path.parent / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    data = newsgroups(messages, "test", on_error="skip")
    assert data.ids == ("20news-bydate-test/rec.autos/1",)
    assert [times for _, times, _ in data.report.skipped] == [1, 1]
