"""Texts as rows of numbers: words, a vocabulary, and word vectors, read from a file in GloVe's format or learned.

A word is a run of letters and digits, in lower case, with apostrophes inside it: ``don't`` is one word. Index 0 pads
short texts, index 1 stands for words outside the vocabulary.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.base.checks import check_integer
from calibrant.base.files import parse_json
from calibrant.data.boxes import Integers
from calibrant.data.dataset import Dataset
from calibrant.data.files import open_file
from calibrant.data.sources import Rows

PAD, UNKNOWN = "<pad>", "<unk>"

#: Which words of a long text are taken, and how words outside the vocabulary are treated.
Side = Literal["first", "last"]
Unknown = Literal["token", "drop"]

GLOVE_DEVIATION = 0.4  # of the numbers in glove.6B.100d.txt, nearly
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def tokens(text: str) -> list[str]:
    r"""The words of a text: matches of ``[^\W_]+(?:'[^\W_]+)*`` in lower case.

    Example:
        >>> tokens("Don't panic: it's 42_times BETTER.")
        ["don't", 'panic', "it's", '42', 'times', 'better']
    """
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class Vocabulary:
    """Words and their indices; 0 is ``<pad>``, 1 is ``<unk>``.

    Example:
        >>> vocabulary = Vocabulary.build(["the cat", "the dog"], size=4)
        >>> vocabulary.words
        ('<pad>', '<unk>', 'the', 'cat')
        >>> vocabulary.encode("The dog, the cat!", 5).tolist()
        [2, 1, 2, 3, 0]
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[:2] != (PAD, UNKNOWN):
            raise ValueError(f"a vocabulary begins with {PAD} and {UNKNOWN}, got {list(self.words[:2])}")
        if len(set(self.words)) != len(self.words):
            raise ValueError("a vocabulary has each word once, and this one repeats some")

    @classmethod
    def build(cls, texts: Iterable[str], *, size: int | None = None, min_count: int = 1) -> Vocabulary:
        """The most frequent words of the training texts, equally frequent ones in alphabetical order.

        Args:
            texts: The training texts.
            size: Largest number of entries, including ``<pad>`` and ``<unk>``; all words if left out.
            min_count: How often a word must occur.
        """
        if size is not None and size < 2:
            raise ValueError(f"a vocabulary has at least the 2 entries {PAD} and {UNKNOWN}, and size is {size}")
        counts: Counter[str] = Counter()
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"a vocabulary is built from texts, got {type(text).__name__}")
            counts.update(tokens(text))
        ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        return cls((PAD, UNKNOWN, *(word for _, word in ranked[: None if size is None else size - 2])))

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The index of each word."""
        return {word: i for i, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str, length: int, *, side: Side = "first", unknown: Unknown = "token") -> Integers:
        """The indices of ``length`` words of a text, int64 [length].

        Args:
            text: The text.
            length: Number of words.
            side: ``"first"`` takes the first words, and pads a shorter text at its end; ``"last"`` takes the last
                words, and pads in front, as Keras' pad_sequences.
            unknown: Words outside the vocabulary become ``<unk>`` with ``"token"``, and are left out with ``"drop"``.
        """
        result = np.zeros(check_integer("length", length, 1), dtype=np.int64)
        ids = [self.index.get(word, 1) for word in tokens(text)]
        if unknown == "drop":
            ids = [index for index in ids if index != 1]
        if side == "last":
            ids = ids[-length:]
            result[length - len(ids) :] = ids
        else:
            ids = ids[:length]
            result[: len(ids)] = ids
        return result

    def to_json(self) -> str:
        """The vocabulary as JSON."""
        return json.dumps({"words": self.words}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """The vocabulary that `to_json` wrote.

        Example:
            >>> Vocabulary.from_json(Vocabulary.build(["a b"]).to_json()).words
            ('<pad>', '<unk>', 'a', 'b')
        """
        document = parse_json(text, "a vocabulary in JSON")
        words = document.get("words") if isinstance(document, dict) else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError('a vocabulary is written as {"words": [...]}, a list of strings, and this is not')
        return cls(tuple(words))


class Vectors(NamedTuple):
    """Word vectors of a vocabulary: values float32 [V, D], and the share of its words that the file has."""

    values: NDArray[np.float32]
    coverage: float


def read_glove(path: str | Path, vocabulary: Vocabulary, dimensions: int, *, seed: int = 0) -> Vectors:
    """Word vectors from a text file: a word and D numbers per line, separated by single spaces (GloVe's format).

    The file is read as a stream; of a repeated word the first line counts. ``<pad>`` is zero; words missing from the
    file, and ``<unk>``, are drawn from a normal distribution with the standard deviation of the vectors read.

    Args:
        path: The file, unpacked.
        vocabulary: The words to look for.
        dimensions: D, which must be that of the file.
        seed: Seed of the drawn vectors.

    Raises:
        ValueError: A line has more or fewer numbers, or something that is not a finite number.
    """
    path = Path(path)
    indices = {word.encode(): i for i, word in enumerate(vocabulary.words) if i >= 2}
    values = np.random.default_rng(seed).standard_normal((len(vocabulary), dimensions)).astype(np.float32)
    is_filled = np.zeros(len(vocabulary), dtype=bool)
    with open_file(path) as file:
        for number, (word, fields) in enumerate(_glove_lines(file, path, dimensions), start=1):
            i = indices.get(word)
            if i is not None and not is_filled[i]:
                values[i], is_filled[i] = _floats(fields, path, number), True
    if is_filled.any():
        values[~is_filled] *= values[is_filled].std()
    values[0] = 0.0
    return Vectors(values, float(is_filled.sum() / len(indices)) if indices else 0.0)


def learn_vectors(rows: Integers, vocabulary_size: int, dimensions: int, *, window: int = 5) -> NDArray[np.float32]:
    """Word vectors from the texts themselves, where no file of vectors is at hand, float32 [V, D].

    The D largest singular vectors of the positive pointwise mutual information of words that stand near each other
    [Levy2015]: M = max(0, log p(w, c) / (p(w) p(c))), M = U S V^T, vectors U S^(1/2), scaled to the standard deviation
    of GloVe's. Words at distance d count 1/d, as in GloVe, and p(c) is proportional to the count to the power 3/4, so
    that rare words do not win. ``<pad>``, ``<unk>`` and words without a neighbour are zero.

    Args:
        rows: Word indices of the training texts, [N, L].
        vocabulary_size: V, with ``<pad>`` and ``<unk>``.
        dimensions: D; those beyond V - 1 are zero.
        window: Largest distance of two words.

    Example:
        >>> rows = np.array([[2, 4, 5], [3, 4, 5], [6, 8, 9], [7, 8, 9]])  # 2 and 3 have the same neighbours
        >>> vectors = learn_vectors(rows, 10, 4)
        >>> bool(vectors[2] @ vectors[3] > 0.1), bool(abs(vectors[2] @ vectors[6]) < 1e-6)
        (True, True)
    """
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import svds

    size = check_integer("vocabulary_size", vocabulary_size, 3)
    rank = min(check_integer("dimensions", dimensions, 1), size - 1)
    counts = coo_array((size, size), dtype=np.float64).tocsr()
    for distance in range(1, min(window, rows.shape[1] - 1) + 1):
        left, right = rows[:, :-distance].ravel(), rows[:, distance:].ravel()
        words = (left > 1) & (right > 1)
        pairs = np.full(words.sum(), 1 / distance), (left[words], right[words])
        counts += coo_array(pairs, shape=counts.shape).tocsr()
    pairs = (counts + counts.T).tocoo()
    frequency = np.bincount(pairs.row, pairs.data, minlength=size)
    context = frequency**0.75 / max((frequency**0.75).sum(), 1.0)
    information = np.maximum(np.log(pairs.data / (frequency[pairs.row] * context[pairs.col])), 0.0)
    if not information.any():
        raise ValueError("no words stand together in the texts more often than by chance: vectors cannot be learned")
    matrix = coo_array((information, (pairs.row, pairs.col)), shape=counts.shape).tocsr()
    start = np.full(size, size**-0.5)  # svds draws one otherwise
    left_vectors, values, _ = svds(matrix, k=rank, v0=start)
    vectors = np.zeros((size, dimensions))
    vectors[:, :rank] = left_vectors * np.sqrt(values)
    deviation = np.sqrt((vectors[frequency > 0, :rank] ** 2).mean())  # from 0: the signs of singular vectors are free
    return (vectors * (GLOVE_DEVIATION / deviation)).astype(np.float32)


def _glove_lines(file: IO[bytes], path: Path, dimensions: int) -> Iterable[tuple[bytes, list[bytes]]]:
    limit = 1024 + 64 * dimensions  # a line without an end must not fill the memory
    number = 0
    while line := file.readline(limit):
        number += 1
        if len(line) == limit:
            raise ValueError(f"{path}: line {number} is longer than a word and {dimensions} numbers can be")
        word, *fields = line.rstrip(b"\r\n").rsplit(b" ", dimensions)
        # GloVe's largest file has words with spaces (". . ."); numbers in front of the numbers are another width.
        extra = word.split(b" ")[1:]
        if len(fields) != dimensions or any(_is_number(part) for part in extra) or (number == 1 and extra):
            actual = len(fields) + len(extra)
            raise ValueError(f"{path}: line {number} has {actual} numbers after its word; {dimensions} were asked for")
        yield word, fields


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _floats(fields: list[bytes], path: Path, number: int) -> list[float]:
    try:
        result = [float(field) for field in fields]
    except ValueError as error:
        raise ValueError(f"{path}: line {number} holds something that is not a number ({error})") from error
    if not all(math.isfinite(value) and abs(value) < 1e30 for value in result):
        raise ValueError(f"{path}: line {number} holds a number that is not finite")
    return result


def encoded(
    dataset: Dataset, vocabulary: Vocabulary, length: int, *, side: Side = "first", unknown: Unknown = "token"
) -> Dataset:
    """The data set with its texts as rows of word indices, int64 [N, length]; all texts are read now.

    Args:
        dataset: A data set of texts.
        vocabulary: The vocabulary of the training texts.
        length: Words per row.
        side: As in `Vocabulary.encode`.
        unknown: As in `Vocabulary.encode`.
    """
    if dataset.kind != "text":
        raise ValueError(f"{dataset.title}: texts are needed to encode them, and its inputs are of kind {dataset.kind}")
    rows = np.zeros((len(dataset), length), dtype=np.int64)
    for i in range(len(dataset)):
        rows[i] = vocabulary.encode(dataset.inputs[i], length, side=side, unknown=unknown)
    return dataset.replace(inputs=Rows(rows, name=dataset.title))
