"""``calibrant maps``: a page and a table of an image, and one sentence for bad input."""

import json

import pytest

from tests.cli.test_fit import run
from tests.helpers.mask_runs import trained_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return trained_runs(tmp_path_factory.mktemp("runs"))


def test_a_page_is_written_and_its_numbers_are_printed(runs, tmp_path, capsys):
    page = tmp_path / "maps.html"
    code, out, _ = run(capsys, "maps", f"CE={runs['ce']}", runs["ls"], "--image", "000005", "-o", page, "--json")
    assert code == 0
    told = json.loads(out)
    assert told["image"] == "test-0-000005"
    assert list(told["methods"]) == ["CE", "ls"]
    assert 0 < told["pixels"] <= 256
    assert "test-0-000005" in page.read_text(encoding="utf-8")
    code, out, _ = run(capsys, "maps", runs["ls"], "--image", "000005", "-o", page)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["maps", "RUN", "--image", "absent"], "'absent'"),
        (["maps", "RUN", "--image", "000001", "-o", "page.pdf"], ".html"),
        (["maps", "RUN"], "--image"),
    ],
)
def test_errors_are_one_line(runs, capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *[str(runs["ce"]) if word == "RUN" else word for word in arguments])
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
