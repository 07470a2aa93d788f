"""XML, JSON and numbers out of files that nobody vouches for."""

import pytest

from calibrant.data import read
from calibrant.data.files import UnreadableError
from calibrant.data.readers._annotations import MAX_XML, parse_annotation, parse_number, read_json
from tests.helpers import box_files as files
from tests.helpers.box_files import skipped, write, xml
from tests.helpers.reader_data import one_sentence


@pytest.mark.parametrize(
    "value", ["", "x", "nan", "inf", "1e400", "1_000", "1,5", None, True, [1], float("nan"), 10**400]
)
def test_what_is_not_a_number(value):
    with pytest.raises(ValueError, match="is not a number that a coordinate can be"):
        parse_number(value)


def test_numbers():
    assert [parse_number(v) for v in (" 12 ", "-3.5", "1e2", ".5", 7, 2.25)] == [12, -3.5, 100, 0.5, 7, 2.25]


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    "<annotation><filename>&b;</filename></annotation>"
)


BROKEN_XML = {
    "entity bomb": (BOMB, "declares a document type or entities"),
    "document type": ('<!DOCTYPE annotation SYSTEM "file:///etc/passwd"><annotation/>', "declares a document type"),
    "empty": ("", "not XML"),
    "cut off": (xml([("bed", 1, 1, 2, 2)])[:-30], "not XML"),
    "another root": ("<html/>", "root of the file is <html>"),
    "no name": ("<annotation><object><bndbox/></object></annotation>", "an <object> has no <name>"),
    "no box": ("<annotation><object><name>bed</name></object></annotation>", "'bed' has no <bndbox>"),
    "unknown encoding": ('<?xml version="1.0" encoding="no-such"?><annotation', "not XML"),
    "too large": (" " * (MAX_XML + 1), "at most 4194304 are read"),
    "binary": (bytes(range(256)), "not XML"),
}


@pytest.mark.parametrize("case", BROKEN_XML)
def test_broken_xml(tmp_path, case):
    content, words = BROKEN_XML[case]
    root = files.voc(tmp_path)
    write(root / "Annotations/a.xml", content)
    with pytest.raises(ValueError, match=r"a\.xml") as error:
        read(root, "train")
    one_sentence(error, "Annotations/a.xml", words)
    data = read(root, "train", on_error="skip")
    assert data.ids == tuple(f"JPEGImages/{stem}.jpg" for stem in "cbd")
    assert skipped(data.report) == {"annotation that cannot be read": 1}
    assert read(root, "val").ids == ("JPEGImages/e.jpg",)  # the broken file belongs to another split


def test_deeply_nested_xml(tmp_path):
    deep = write(tmp_path / "deep.xml", "<annotation>" + "<a>" * 200_000 + "</a>" * 200_000 + "</annotation>")
    assert parse_annotation(deep).objects == ()
    with pytest.raises(UnreadableError, match=r"deep\.xml: the file is not XML"):
        parse_annotation(write(deep, "<a>" * 200_000))


def test_xml_in_other_encodings(tmp_path):
    text = xml([("Stühle", 1, 1, 2, 2)])
    for i, content in enumerate(
        [
            text.encode("latin-1"),
            b'<?xml version="1.0" encoding="ISO-8859-1"?>' + text.encode("latin-1"),
            b"\xef\xbb\xbf" + text.encode(),
            text.encode("utf-16"),
        ]
    ):
        annotation = parse_annotation(write(tmp_path / f"{i}.xml", content))
        assert annotation.objects == (("Stühle", ("1", "1", "2", "2")),)


@pytest.mark.parametrize(
    ("encoding", "declared", "name", "guessed"),
    [
        ("gbk", "GBK", "椅子", False),
        ("shift_jis", "Shift_JIS", "椅子", False),
        ("cp1251", "windows-1251", "стул", False),
        ("latin-1", "ISO-8859-1", "Stühle", False),
        ("utf-16", "utf-16", "椅子", False),
        ("utf-16-le", None, "椅子", False),
        ("utf-8", "utf-16", "椅子", False),  # as Windows writes it
        ("utf-8-sig", None, "椅子", False),
        ("latin-1", None, "Stühle", True),
        ("latin-1", "UTF-8", "Stühle", True),
    ],
)
def test_xml_is_decoded_as_it_declares(tmp_path, encoding, declared, name, guessed):
    head = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    path = write(tmp_path / "a.xml", (head + xml([(name, 1, 1, 2, 2)])).encode(encoding))
    annotation = parse_annotation(path)
    assert (annotation.objects[0][0], annotation.guessed) == (name, guessed)


@pytest.mark.parametrize("declared", ["no-such", "hex", "rot13", "punycode", "unicode_escape", "undefined", "ascii"])
def test_xml_in_encodings_that_are_none(tmp_path, declared):
    text = f'<?xml version="1.0" encoding="{declared}"?>' + xml([("Stühle", 1, 1, 2, 2)])
    with pytest.raises(UnreadableError, match=r"a\.xml: the file is not XML"):
        parse_annotation(write(tmp_path / "a.xml", text))


def test_json_with_a_key_twice(tmp_path):
    path = write(tmp_path / "a.json", '{"x": [{"box": 1, "id": 2, "box": 3}]}')
    with pytest.raises(UnreadableError, match=r"a\.json: the key 'box' occurs twice in one object$"):
        read_json(path)
    assert read_json(write(path, '{"x": [{"box": 1, "id": 2}]}'), drop="box") == {"x": [{"id": 2}]}
