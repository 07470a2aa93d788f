"""``calibrant maps``: a page and a table of an image, and one sentence for bad input."""

import json

import pytest

from tests.helpers.mask_runs import trained_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return trained_runs(tmp_path_factory.mktemp("runs"))


def test_a_page_is_written_and_its_numbers_are_printed(runs, tmp_path, run):
    page = tmp_path / "maps.html"
    code, out, _ = run("maps", f"CE={runs['ce']}", runs["ls"], "--image", "000005", "-o", page, "--json")
    assert code == 0
    told = json.loads(out)
    assert told["image"] == "test-0-000005"
    assert list(told["methods"]) == ["CE", "ls"]
    assert 0 < told["pixels"] <= 256
    assert "test-0-000005" in page.read_text(encoding="utf-8")
    code, out, _ = run("maps", runs["ls"], "--image", "000005", "-o", page)


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--image", "absent"], "'absent'"), (["--image", "000001", "-o", "page.pdf"], ".html"), ([], "--image")],
)
def test_errors_are_one_line(runs, refuse, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert told in refuse("maps", runs["ce"], *words)
