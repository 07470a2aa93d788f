"""``calibrant data``: a small detection set with everything that can be wrong, looked at and written anew."""

import json
import os
import re
import shlex
import shutil
import signal
import tempfile

import numpy as np
import pytest
from PIL import Image

from calibrant.cli import main
from calibrant.data import Dataset, ImageArray, read, single_object
from calibrant.data.readers.calibrant_folder import write_dataset
from tests.helpers.errors import facts
from tests.helpers.processes import finish, start

SIZE = "<size><width>{w}</width><height>{h}</height></size>"
XML = f"<annotation><filename>{{name}}.jpg</filename>{SIZE}{{objects}}</annotation>"
CORNERS = "<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox>"
OBJECT = f"<object><name>{{}}</name>{CORNERS}</object>"


def annotate(root, name, objects, size=(40, 30), mode="RGB", seed=0):
    (root / "Annotations").mkdir(parents=True, exist_ok=True)
    (root / "JPEGImages").mkdir(exist_ok=True)
    channels = {"RGB": (3,), "L": (), "CMYK": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], *channels), dtype=np.uint8)
    Image.fromarray(pixels, mode=None if mode != "CMYK" else "CMYK").save(root / "JPEGImages" / f"{name}.jpg")
    text = XML.format(name=name, w=size[0], h=size[1], objects="".join(OBJECT.format(*o) for o in objects))
    (root / "Annotations" / f"{name}.xml").write_text(text, encoding="utf-8")


@pytest.fixture
def household(tmp_path):
    root = tmp_path / "household"
    annotate(root, "000001", [("cup", 2, 3, 20, 18), ("spoon", 10, 10, 39, 28)], seed=1)
    annotate(root, "000002", [("cup", 0, 0, 40, 30)], seed=2)
    annotate(root, "000003", [("tea cup", 5, 5, 5, 20), ("spoon", 1, 1, 9, 9)], mode="L", seed=3)
    annotate(root, "000004", [("teacup", 1, 1, 2, 9), ("spoon", 30, 20, 55, 33)], mode="CMYK", seed=4)
    annotate(root, "000005", [("cup", 30, 5, 10, 20)], seed=5)  # inverted
    annotate(root, "000006", [("cup", 3, 5, 10, 20)], seed=6)
    whole = (root / "JPEGImages" / "000006.jpg").read_bytes()
    (root / "JPEGImages" / "000006.jpg").write_bytes(whole[: len(whole) // 3])
    annotate(root, "000007", [], seed=7)
    (root / "JPEGImages" / "000008.jpg").write_bytes((root / "JPEGImages" / "000002.jpg").read_bytes())
    (root / "Annotations" / "000008.xml").write_text(
        XML.format(name="000008", w=40, h=30, objects=OBJECT.format("spoon", 0, 0, 10, 10))
    )
    return root


def inspected(run, *words):
    code, out, _ = run("data", "inspect", *words, "--json")
    assert code == 0
    return json.loads(out)


def test_inspect_counts_and_lists_everything(household, run):
    document = inspected(run, household)
    assert document["layout"] == "voc"
    assert document["samples"] == 6
    split = document["splits"]["all"]
    skipped, odd = (
        [re.findall(r"00000\d|'[a-z ]+'|tea ?cup", place)[0] for finding in split[kind] for place in finding["where"]]
        for kind in ("skipped", "odd")
    )
    assert skipped == ["000005", "000006"], "an inverted box, a truncated image"
    # A box around the whole image; no area, grayscale; outside, CMYK, a tiny box; no objects. Two classes are spelled
    # alike (said once), have a single box each, and no image.
    images = ["000002", *["000003"] * 2, *["000004"] * 3, "000007"]
    assert sorted(odd) == ["'tea cup'", "'teacup'", "'teacup'", *images, "tea cup", "teacup"]
    assert split["boxes"]["without_area"] == 1
    assert split["boxes"]["images_by_number"] == {"0": 1, "1": 2, "2": 3}
    assert split["without_class"] == 1
    assert split["boxes"]["area_histogram"] == [5, 0, 1, 0, 1, 0, 0, 0, 0, 1], "of what is inside of the image"
    # By hand: 18*15 + 29*18 - 10*8 of 1200; all; 64 and nothing; 8 and 10*10; 100; nothing.
    shares = [712 / 1200, 1.0, 64 / 1200, (8 + 100) / 1200, 100 / 1200, 0.0]
    assert split["boxes"]["mean_objectness"] == pytest.approx(np.mean(shares), abs=1e-12)
    assert split["boxes"]["objectness_histogram"] == np.histogram(shares, np.linspace(0, 1, 11))[0].tolist()
    (copies,) = document["across_splits"]
    assert re.search(facts("000002", "000008"), copies["where"][0])


@pytest.mark.slow
def test_inspect_draws_a_page(household, tmp_path, run):
    out = tmp_path / "page"
    result, text, err = run("data", "inspect", household, "-o", out, "--decode")
    assert result == 0
    assert "6 samples" in text
    assert str(out / "index.html") in err
    with Image.open(out / "contact-sheet-all.png") as sheet:
        assert sheet.width > 500
    page = (out / "index.html").read_text()
    assert page.count('<image class="pixels" href="data:image/png;base64,') == 6
    assert "000005" in page
    words = shlex.join(["calibrant", "data", "inspect", str(household), "-o", str(out), "--decode"])
    assert f"<code>{words}</code>" in page
    assert '<section class="verdict poor"' in page, "copies with different labels"


@pytest.mark.slow
def test_inspect_writes_over_its_own_page(household, tmp_path, run):
    out = tmp_path / "page"
    assert run("data", "inspect", household, "-o", out, "--samples", "3")[0] == 0
    first = sorted(path.name for path in out.iterdir())
    assert first == ["contact-sheet-all.png", "index.html", "summary.svg"]
    (out / "notes.txt").write_text("mine")
    (out / ".calibrant-part.000000000000.abcdefgh.png").write_text("left by a killed run")
    before = (out / "index.html").read_bytes()
    assert run("data", "inspect", household, "-o", out, "--samples", "4")[0] == 0
    assert (out / "index.html").read_bytes() != before
    assert sorted(path.name for path in out.iterdir()) == sorted([*first, "notes.txt"])
    assert (out / "notes.txt").read_text() == "mine"
    (out / "index.html").write_text("<html>mine</html>")
    result, _, err = run("data", "inspect", household, "-o", out)
    assert (result, str(out) in err) == (2, True)
    assert (out / "index.html").read_text() == "<html>mine</html>"


def inspect_and_die(words, folder):
    """In a process of its own, which ends where the first figure is copied to its place."""
    tempfile.tempdir = str(folder)
    shutil.copyfile = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    main(words)


@pytest.mark.slow
def test_inspect_killed_and_repeated(household, tmp_path, run):
    """Killed after the page and before its figures, or before the page: what is there is known as ours."""
    words = ["data", "inspect", str(household), "--quiet", "-o"]
    assert finish(start(inspect_and_die, [*words, str(tmp_path / "out")], tmp_path)) == -signal.SIGKILL
    assert any(path.name.startswith(".calibrant-part.") for path in (tmp_path / "out").iterdir())
    assert run(*words, tmp_path / "out")[0] == 0
    assert run(*words, tmp_path / "whole")[0] == 0
    names = [path.name for path in (tmp_path / "whole").iterdir()]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    for name in names:
        # The page has the command that made it.
        resumed = (tmp_path / "out" / name).read_bytes().replace(bytes(tmp_path / "out"), bytes(tmp_path / "whole"))
        assert resumed == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--beta", "nan"], "beta"),
        (["--beta", "2"], "beta 2"),
        (["--samples", "100000"], "samples"),
        (["--split", "none"], "'none'"),
        (["--split", "dev"], "'dev' all"),
        (["--layout", "coco"], "coco"),
        (["--option", "classes=5"], "classes"),
        (["--option", "colour=red"], "'colour' classes, rename"),
        (["--option", "colour"], "name=value"),
        (["--option", "classes=" + "[" * 5000], "classes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_refused_inspections_leave_no_folder(household, tmp_path, monkeypatch, refuse, words, told):
    monkeypatch.chdir(tmp_path)
    assert re.search(facts(*told.split()), refuse("data", "inspect", household, "-o", "a/b", *words))


@pytest.mark.slow
def test_splits_of_any_name_have_a_contact_sheet(tmp_path, run):
    names = ["a/b", "a-b", "../up", "$x$", "_y", "\u202e", "x" * 300, "a\0b", "<script>alert(1)</script>"]
    pixels = np.zeros((len(names), 4, 4, 3), np.uint8)
    np.savez(tmp_path / "set.npz", images=pixels, y=np.arange(len(names)) % 2, split=np.array(names))
    out = tmp_path / "out"
    result, text, _ = run("data", "inspect", tmp_path / "set.npz", "-o", out, "--json")
    assert result == 0
    files = json.loads(text)["files"]
    assert len(set(files.values())) == len(names) + 2
    assert sorted(str(path) for path in out.iterdir()) == sorted(files.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "set.npz"]
    page = (out / "index.html").read_text(encoding="utf-8")
    assert page.count("<script") == 1, "that of the report"
    assert "\u202e" not in page


def test_make_variant_writes_what_is_made_lazily(household, tmp_path, run):
    out = tmp_path / "alone"
    words = ["data", "make-variant", household, "single-object", "-o", out]
    words += ["--fill", "9,8,7", "--skip-broken", "--json"]
    result, text, _ = run(*words)
    assert result == 0
    summary = json.loads(text)
    lazy = single_object(read(household, on_error="skip"), (9, 8, 7))
    assert summary["splits"]["all"]["samples"] == len(lazy)
    again = read(out, "all")
    assert again.ids == lazy.ids
    assert again.classes == lazy.classes
    assert again.labels.tolist() == lazy.labels.tolist()
    assert again.boxes.corners.tolist() == lazy.boxes.corners.tolist()
    for before, after in zip(lazy, again, strict=True):
        assert np.array_equal(np.asarray(before.input), np.asarray(after.input))
    result, _, err = run(*words[:2], household, "context-only", *words[4:])
    assert (result, str(out) in err) == (2, True)


def test_readers_take_options(household, run):
    rename = json.dumps({"tea cup": "cup", "teacup": "cup"})
    facts = inspected(run, household, "--option", f"rename={rename}")["splits"]["all"]
    assert list(facts["class_counts"]) == ["cup", "spoon"]


def test_only_repeated_splits_are_left_out(household, run):
    lists = household / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "trainval.txt").write_text("000001\n000002\n")
    (lists / "test.txt").write_text("000004\n")
    assert inspected(run, household)["samples"] == 3
    (lists / "train.txt").write_text("000001\n")
    (lists / "val.txt").write_text("000002\n")
    result, text, err = run("data", "inspect", household, "--json")
    assert result == 0
    assert json.loads(text)["samples"] == 3
    assert "trainval" in err
    assert inspected(run, household, "--split", "trainval")["samples"] == 2


def test_several_sets_in_one_folder_are_not_guessed(household, run):
    (household.parent / "other").symlink_to(household)
    result, _, err = run("data", "inspect", household.parent)
    assert (result, "household" in err) == (2, True)


NASTY = ["\x1b[31mred", "a\x07b", "\u202egnp.exe", "c\x9b2J", "line\nline", "[bold]x[/bold]", "caf\udce9"]


@pytest.mark.parametrize(
    ("words", "code"), [([], 0), (["--json"], 0), (["--option", "\x1b[2J=1"], 2), (["--split", "\x1b[2J"], 2)]
)
def test_names_in_folders_cannot_reach_the_terminal(tmp_path, run, words, code):
    root = tmp_path / "\x1b]0;set"
    for i, name in enumerate(NASTY):
        (root / name).mkdir(parents=True)
        Image.new("RGB", (4, 3), (i, i, i)).save(root / name / "\x1b[2J.png")
        (root / name / "\x9bbroken.png").write_bytes(b"")
    result, text, err = run("data", "inspect", root, *words)
    assert result == code
    assert not [c for c in text + err if not c.isprintable() and c != "\n"]
    assert ("[bold]x[/bold]" in text) == (code == 0)


@pytest.mark.slow
def test_files_and_long_names_do_not_flood_the_terminal(tmp_path, run):
    root = tmp_path / "set"
    annotate(root, "000001", [("cup" * 100_000, 2, 3, 20, 18), ("b", 1, 1, 5, 5)])
    result, text, _ = run("data", "inspect", root, "-o", tmp_path / "page")
    assert result == 0
    assert len(text) < 20_000


def test_other_pixels_are_not_taken_for_the_same_set(tmp_path, run):
    for seed, name in enumerate(("one", "two")):
        annotate(tmp_path / name / "set", "000001", [("cup", 5, 5, 20, 20)], seed=seed)
    words = ["context-only", "-o", tmp_path / "out", "--fill", "1,2,3"]
    assert run("data", "make-variant", tmp_path / "one" / "set", *words)[0] == 0
    assert read(tmp_path / "out", "all").context.all()
    result, _, err = run("data", "make-variant", tmp_path / "two" / "set", *words)
    assert (result, "out" in err) == (2, True)


def test_what_cannot_be_written_is_refused(tmp_path):
    pixels = np.zeros((2, 4, 4, 3), np.uint8)
    data = Dataset("toy", "../evil", ("a", "b"), ("1", "2"), [0, 1], ImageArray(pixels), soft=np.eye(2))
    with pytest.raises(ValueError, match=facts("../evil")):
        write_dataset(data, tmp_path / "out")
    with pytest.raises(ValueError, match=facts("masks")):
        write_dataset(data.replace(split="all", masks=ImageArray(pixels)), tmp_path / "out")
    write_dataset(data.replace(split="all"), tmp_path / "out")
    assert read(tmp_path / "out", "all").soft.tolist() == [[1, 0], [0, 1]]


def test_make_variant_stops_at_broken_samples(household, tmp_path, run):
    result, _, err = run("data", "make-variant", household, "context-only", "-o", tmp_path / "x")
    assert (result, "000005" in err) == (2, True)
