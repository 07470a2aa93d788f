"""20 Newsgroups, vocabularies and word vectors; oracles: scikit-learn's rules, values by hand."""

import json
import os

import numpy as np
import pytest
from sklearn.datasets import _twenty_newsgroups as theirs

from calibrant.data import ImageArray, read, recognise
from calibrant.data.dataset import Dataset
from calibrant.data.readers.newsgroups import newsgroups, stripped
from calibrant.data.text import Vocabulary, encoded, read_glove, tokens

MESSAGE = """From: someone@somewhere
Subject: Re: a question

In article <1@x>, other@y writes:
> Is it so?
| Or not?

It is, as he said: yes.
Truly so.

--
Someone, Somewhere"""


@pytest.fixture
def messages(tmp_path):
    files = {
        "20news-bydate-train/sci.space/2": MESSAGE.encode(),
        "20news-bydate-train/sci.space/10": "caf\xe9".encode("latin-1"),
        "20news-bydate-train/alt.atheism/7": "caf\xe9\r\n".encode(),
        "20news-bydate-train/alt.atheism/8": b"",
        "20news-bydate-test/sci.space/3": b"Only: headers\n\n> and quotes",
        "20news-bydate-test/rec.autos/1": b"x",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def odd(data):
    return {f.what: (f.times, f.where) for f in data.report.odd}


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
    assert odd(data) == {
        "carriage returns": (1, (f"{start}/alt.atheism/7",)),
        "empty file": (1, (f"{start}/alt.atheism/8",)),
        "not UTF-8, read as latin-1": (1, (f"{start}/sci.space/10",)),
    }


def test_parts_are_removed_also_after_take(messages):
    data = newsgroups(messages, "train", remove=("headers", "footers", "quotes")).take([3])
    assert data[0].input == "\nTruly so.\n"
    data = newsgroups(messages, "test", remove=("headers", "quotes"))
    assert odd(data) == {
        "empty once parts are removed": (2, ("20news-bydate-test/rec.autos/1", "20news-bydate-test/sci.space/3"))
    }
    for wrong in ("headers", ["signature"]):
        with pytest.raises(ValueError, match="option remove must be a list with some of 'headers' or 'footers'"):
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
        assert stripped(text, (part,)) == RULES[part](text), repr(text)
    assert stripped(MESSAGE, (part,)) == RULES[part](MESSAGE)


def test_files_that_cannot_be_read(messages):
    path = messages / "20news-bydate-test" / "sci.space" / "3"
    os.truncate(path, 2**26 + 1)  # takes no room on disk
    with pytest.raises(ValueError, match=r"sci\.space/3: the file cannot be read \(.*at most 67108864 are read"):
        newsgroups(messages, "test")
    data = newsgroups(messages, "test", on_error="skip")
    assert data.ids == ("20news-bydate-test/rec.autos/1",)
    reason = "the file has 67108865 bytes; at most 67108864 are read"
    assert data.report.skipped == (("the file cannot be read", 1, (f"20news-bydate-test/sci.space/3 ({reason})",)),)
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match="leads out of the data folder"):
        newsgroups(messages, "test")
    (path.parent / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    data = newsgroups(messages, "test", on_error="skip")
    assert data.ids == ("20news-bydate-test/rec.autos/1",)
    assert [what for what, _, _ in data.report.skipped] == ["hidden file", "link that leads out of the data folder"]


def test_words():
    assert tokens("It's CAF\xc9-time, isn't it? 'quoted' x_y 3.5\n\ttabs") == [
        *("it's", "caf\xe9", "time", "isn't", "it", "quoted", "x", "y", "3", "5", "tabs")
    ]
    assert tokens("") == tokens("--- !!!") == []


def test_vocabularies_are_ordered_by_count_then_by_the_alphabet():
    texts = ["b a c", "c b", "b d"]
    assert Vocabulary.build(texts).words == ("<pad>", "<unk>", "b", "c", "a", "d")
    assert Vocabulary.build(texts, size=5).words == ("<pad>", "<unk>", "b", "c", "a")
    assert Vocabulary.build(texts, min_count=2).words == ("<pad>", "<unk>", "b", "c")
    assert len(Vocabulary.build([], size=2)) == 2
    with pytest.raises(ValueError, match="at least the 2 entries"):
        Vocabulary.build(texts, size=1)


def test_texts_are_cut_and_filled():
    vocabulary = Vocabulary.build(["b a c", "c b", "b d"], size=5)
    row = vocabulary.encode("B d <pad> a, c!", 4)
    assert (row.dtype, row.tolist()) == (np.int64, [2, 1, 1, 4])
    assert vocabulary.encode("b", 3).tolist() == [2, 0, 0]
    assert vocabulary.encode("", 2).tolist() == [0, 0]
    with pytest.raises(ValueError, match="a length of at least 1, got 0"):
        vocabulary.encode("b", 0)


def test_vocabularies_are_built_from_texts():
    with pytest.raises(ValueError, match="a vocabulary is built from texts, got bytes"):
        Vocabulary.build(["a", b"b"])


def test_vocabularies_as_json():
    vocabulary = Vocabulary.build(["caf\xe9 \u4e2d"])
    assert json.loads(vocabulary.to_json()) == {"words": ["<pad>", "<unk>", "caf\xe9", "\u4e2d"]}
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    for text, message in (
        ("{", "not a vocabulary in JSON"),
        ("[" * 100_000, "not a vocabulary in JSON"),
        ('{"words": [1]}', "list of strings"),
        ("[]", "list of strings"),
        ('{"words": ["a", "b"]}', "begins with <pad> and <unk>"),
        ('{"words": ["<pad>", "<unk>", "a", "a"]}', "repeats"),
    ):
        with pytest.raises(ValueError, match=message):
            Vocabulary.from_json(text)


def test_encoded_data_sets(messages):
    data = newsgroups(messages, "train")
    vocabulary = Vocabulary.build(data.inputs[i] for i in range(len(data)))
    rows = encoded(data, vocabulary, 3)
    caf = vocabulary.index["caf\xe9"]
    assert (rows.kind, rows.ids, rows.labels.tolist()) == ("array", data.ids, [0, 0, 2, 2])
    assert rows.inputs.values[:3].tolist() == [[caf, 0, 0], [0, 0, 0], [caf, 0, 0]]
    assert [vocabulary.words[i] for i in rows[3].input] == ["from", "someone", "somewhere"]
    images = Dataset("i", "all", ("a",), ("0",), [0], ImageArray(np.zeros((1, 2, 2), np.uint8)))
    with pytest.raises(ValueError, match="texts are needed to encode them, and its inputs are of kind image"):
        encoded(images, vocabulary, 3)


def test_word_vectors(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 0.1 -0.2 3e-1\n. . . 1 2 3\ncat 4 5 6\nthe 9 9 9\nother x y z\n", encoding="utf-8")
    vocabulary = Vocabulary(("<pad>", "<unk>", "cat", "dog", "the"))
    values, coverage = read_glove(path, vocabulary, 3)
    assert (values.dtype, values.shape, coverage) == (np.float32, (5, 3), pytest.approx(2 / 3))
    np.testing.assert_allclose(values[[0, 2, 4]], [[0, 0, 0], [4, 5, 6], [0.1, -0.2, 0.3]], rtol=1e-6)
    spread = np.std([4, 5, 6, 0.1, -0.2, 0.3])
    drawn = np.random.default_rng(0).standard_normal((5, 3))
    np.testing.assert_allclose(values[[1, 3]], spread * drawn[[1, 3]], rtol=1e-5)
    assert np.array_equal(read_glove(path, vocabulary, 3).values, values)
    assert not np.array_equal(read_glove(path, vocabulary, 3, seed=1).values[3], values[3])
    assert read_glove(path, Vocabulary(("<pad>", "<unk>")), 3).coverage == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("400000 3\ncat 1 2 3\n", "line 1 has 1 numbers after its word; 3 were asked for"),
        ("cat 1 2 3 4\n", "line 1 has 4 numbers"),
        ("the 1 2 3\ncat 1 2 3 4\n", "line 2 has 4 numbers"),
        ("the 1 2 3\ncat 1 2\n", "line 2 has 2 numbers"),
        ("the 1 2 3\n\n", "line 2 has 0 numbers"),
        ("cat 1 x 3\n", "line 1 holds something that is not a number"),
        ("cat 1 nan 3\n", "line 1 holds a number that is not finite"),
        ("cat 1 1e39 3\n", "line 1 holds a number that is not finite"),
        ("a" * 5000, "line 1 is longer than"),
    ],
)
def test_word_vectors_that_are_broken(tmp_path, text, message):
    (tmp_path / "glove.txt").write_text(text)
    with pytest.raises(ValueError, match=rf"glove\.txt: {message}"):
        read_glove(tmp_path / "glove.txt", Vocabulary(("<pad>", "<unk>", "cat")), 3)
