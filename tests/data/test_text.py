"""20 Newsgroups with its oddities; words, vocabularies and word vectors."""

import json
import os

import numpy as np
import pytest
from sklearn.datasets import _twenty_newsgroups as theirs

from calibrant.data import ImageArray, read, recognise
from calibrant.data.dataset import Dataset
from calibrant.data.readers.newsgroups import newsgroups, strip_parts
from calibrant.data.text import GLOVE_DEVIATION, Vocabulary, encoded, learn_vectors, read_glove, tokens
from tests.helpers.errors import facts
from tests.helpers.reader_data import MESSAGE, newsgroup_messages, odd_in


@pytest.fixture
def messages(tmp_path):
    return newsgroup_messages(tmp_path)


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
    with pytest.raises(ValueError, match=facts("2")):
        Vocabulary.build(texts, size=1)
    with pytest.raises(ValueError, match=facts("bytes")):
        Vocabulary.build(["a", b"b"])


def test_texts_are_cut_and_filled():
    vocabulary = Vocabulary.build(["b a c", "c b", "b d"], size=5)
    row = vocabulary.encode("B d <pad> a, c!", 4)
    assert (row.dtype, row.tolist()) == (np.int64, [2, 1, 1, 4])
    assert vocabulary.encode("b", 3).tolist() == [2, 0, 0]
    assert vocabulary.encode("", 2).tolist() == [0, 0]
    with pytest.raises(ValueError, match=facts("length", "0")):
        vocabulary.encode("b", 0)


def test_the_last_words_are_filled_up_in_front_and_unknown_ones_can_be_dropped():
    """As Keras' Tokenizer and pad_sequences, worked by hand."""
    vocabulary = Vocabulary.build(["a a a b b c"])
    assert vocabulary.words[2:] == ("a", "b", "c")
    assert vocabulary.encode("c b a", 2, side="last").tolist() == [3, 2]
    assert vocabulary.encode("c b", 4, side="last").tolist() == [0, 0, 4, 3]
    assert vocabulary.encode("c x b", 2, side="last").tolist() == [1, 3]
    assert vocabulary.encode("c x b", 2, side="last", unknown="drop").tolist() == [4, 3]
    assert vocabulary.encode("x c y b", 3, unknown="drop").tolist() == [4, 3, 0]
    assert vocabulary.encode("x", 2, side="last", unknown="drop").tolist() == [0, 0]


def test_vocabularies_as_json():
    vocabulary = Vocabulary.build(["caf\xe9 \u4e2d"])
    assert json.loads(vocabulary.to_json()) == {"words": ["<pad>", "<unk>", "caf\xe9", "\u4e2d"]}
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary
    for text, message in (
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"words": [1]}', "strings"),
        ("[]", "strings"),
        ('{"words": ["a", "b"]}', "<pad>"),
        ('{"words": ["<pad>", "<unk>", "a", "a"]}', "vocabulary"),
    ):
        with pytest.raises(ValueError, match=facts(message)):
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
    with pytest.raises(ValueError, match=facts("image")):
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
        ("400000 3\ncat 1 2 3\n", ("line 1", "1", "3")),
        ("cat 1 2 3 4\n", ("line 1", "4")),
        ("the 1 2 3\ncat 1 2 3 4\n", ("line 2", "4")),
        ("the 1 2 3\ncat 1 2\n", ("line 2", "2")),
        ("the 1 2 3\n\n", ("line 2", "0")),
        ("cat 1 x 3\n", ("line 1",)),
        ("cat 1 nan 3\n", ("line 1",)),
        ("cat 1 1e39 3\n", ("line 1",)),
        ("a" * 5000, ("line 1",)),
    ],
)
def test_word_vectors_that_are_broken(tmp_path, text, message):
    (tmp_path / "glove.txt").write_text(text)
    with pytest.raises(ValueError, match=facts("glove.txt", *message)):
        read_glove(tmp_path / "glove.txt", Vocabulary(("<pad>", "<unk>", "cat")), 3)


def positive_information(rows, size, window):
    """The matrix of positive pointwise mutual information, pair by pair, from Levy2015 Sec. 2.2 and 3.2."""
    counts = np.zeros((size, size))
    for row in rows:
        for i, word in enumerate(row):
            for j, other in enumerate(row):
                if i != j and abs(i - j) <= window and word > 1 and other > 1:
                    counts[word, other] += 1 / abs(i - j)
    word_share, context = counts.sum(1) / counts.sum(), counts.sum(1) ** 0.75
    matrix = np.zeros_like(counts)
    for word, other in np.argwhere(counts):
        together = counts[word, other] / counts.sum()
        matrix[word, other] = max(0.0, np.log(together / (word_share[word] * context[other] / context.sum())))
    return matrix


@pytest.mark.parametrize("window", [1, 3])
def test_vectors_are_learned_from_words_that_stand_together(window):
    rows = np.random.default_rng(0).integers(0, 9, (7, 11))
    rows[:, 4] = rows[:, 3]  # a word beside itself
    vectors = learn_vectors(rows, 9, 4, window=window).astype(np.float64)
    u, s, _ = np.linalg.svd(positive_information(rows, 9, window))
    expected = u[:, :4] * np.sqrt(s[:4])
    expected *= GLOVE_DEVIATION / np.sqrt((expected[2:] ** 2).mean())
    # Singular vectors are known up to their sign and, of equal values, up to a rotation; inner products are not.
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)
    assert vectors.std(axis=0).min() > 0
    np.testing.assert_allclose(vectors[:2], 0, atol=1e-7)  # padding and unknown words


def test_few_words_leave_dimensions_empty():
    vectors = learn_vectors(np.array([[2, 3, 2, 3], [4, 5, 4, 5]]), 6, 8)
    assert vectors.shape == (6, 8)
    assert not vectors[:, 5:].any()
    assert vectors[:, :5].any()


@pytest.mark.parametrize("rows", [[[0, 0, 1], [1, 2, 1]], [[2], [3]]])
def test_nothing_is_learned_from_words_that_stand_alone(rows):
    with pytest.raises(ValueError, match=facts("vectors")):
        learn_vectors(np.array(rows), 5, 2)


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
