"""Options of readers: one that does not exist or is of another kind is one sentence, whoever gives it."""

import inspect
import re
import typing
from pathlib import Path

import numpy as np
import pytest

from calibrant.data import layouts, read
from calibrant.data.layouts import check_options
from tests.helpers import box_files
from tests.helpers.data_trees import TREES
from tests.helpers.errors import facts

DEEP: list = []
for _ in range(100_000):
    DEEP = [DEEP]
STRANGE = [
    5, -1, 2.5, True, "x", "", [], {}, [1], [None], {"a": 1}, {"a": {}}, {1: "a"}, None, object(), b"x", 10**5000, DEEP,
]  # fmt: skip
OPTIONS = [
    (name, parameter.name)
    for name, layout in layouts().items()
    for parameter in inspect.signature(layout.read).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY and parameter.name != "on_error"
]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_every_option_takes_what_its_annotation_says(name, option):
    reader = layouts()[name].read
    hint = typing.get_type_hints(reader)[option]
    assert hint is not typing.Any, "an option whose kind nobody stated is not checked"
    refused = 0
    for value in STRANGE:
        try:
            assert check_options(name, reader, {option: value}) == {option: value}
        except ValueError as error:
            refused += 1
            said = str(error)
            assert name in said
            assert option in said
            assert len(said) < 300
    assert refused > len(STRANGE) / 2
    default = inspect.signature(reader).parameters[option].default
    assert check_options(name, reader, {option: default}) == {option: default}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 5}, facts("voc", "classes", "5")),
        ({"classes": {}}, facts("{}")),
        ({"classes": "bed"}, facts("bed")),
        ({"rename": [1]}, facts("[1]")),
        ({"colour": 1}, facts("voc", "colour")),
        ({"\x1b[2J": 1}, facts("voc", "\\\\x1b[2J")),
        ({"split_": 1, "classes": 5}, facts("voc", "split_")),
    ],
)
def test_read_checks_options(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        read(box_files.voc(tmp_path), "train", **options)


def test_numbers_of_numpy_and_tuples_are_taken():
    kinds = layouts()
    assert check_options("digits", kinds["digits"].read, {"seed": np.int64(3)}) == {"seed": 3}
    assert check_options("voc", kinds["voc"].read, {"classes": ("a", "b")}) == {"classes": ("a", "b")}
    for remove in (("headers",), ["headers"], {"quotes"}, frozenset({"footers"})):
        assert check_options("newsgroups", kinds["newsgroups"].read, {"remove": remove}) == {"remove": remove}
    with pytest.raises(ValueError, match=facts("seed", "9223372036854775808")):
        check_options("digits", kinds["digits"].read, {"seed": 2**63})
    with pytest.raises(ValueError, match=facts("context", "nan")):
        check_options("scenes", kinds["scenes"].read, {"context": float("nan")})


def test_more_scenes_than_memory_are_refused():
    with pytest.raises(ValueError, match=facts("1000000000000", "32")):
        read("scenes", "val", samples=10**12)


@pytest.mark.parametrize("case", TREES)
def test_no_reader_takes_an_unknown_option(case, tmp_path):
    make, layout, split, _ = TREES[case]
    with pytest.raises(ValueError, match=facts(layout, "nothing")):
        read(make(tmp_path / "set"), split, layout=layout, nothing=1)


def test_the_table_of_the_docs_has_every_layout():
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    names = {name for cell in first for name in re.findall(r"`([\w-]+)`", cell)}
    assert set(layouts()) <= names, "add it to the table of docs/data.md"
