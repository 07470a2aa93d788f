"""``calibrant demo``: what it prints, with the demonstration itself in its place; and its study from end to end."""

import json

import pytest

from calibrant import experiments

STAGES = ("before", "repaired", "deployed")


@pytest.fixture
def fake_demo(monkeypatch, tmp_path):
    """A demonstration that was made elsewhere: its own tests run it."""
    calls = []

    class Result:
        page = tmp_path / "index.html"
        document = {stage: {"value": f"{stage} 1", "aside": "aside", "text": "Text."} for stage in STAGES} | {
            "headline": "It claims.", "outcome": "Kept", "story": {"claims": 0.5}, "commands": ("calibrant fit x",),
        }  # fmt: skip

    def run_demo(folder, **options):
        calls.append((folder, options))
        return Result()

    monkeypatch.setattr(experiments, "run_demo", run_demo)
    return calls


def test_three_steps_and_the_commands_are_printed(run, fake_demo, tmp_path):
    code, out, err = run("demo", "-o", tmp_path, "--seed", "4", "--quick")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith(("Before", "Repaired", "Deployed"))] == [
        f"{stage.capitalize()}: {stage} 1 aside. Text." for stage in STAGES
    ]
    assert f"cd {tmp_path}" in out
    assert "  calibrant fit x" in out.splitlines()
    assert err.strip().endswith("index.html")
    ((folder, options),) = fake_demo
    assert (folder, options["seed"], options["quick"]) == (tmp_path, 4, True)
    code, out, _ = run("demo", "-o", tmp_path, "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "Kept")


@pytest.mark.slow
def test_the_study_ends_with_claims_tables_and_a_page(run, tmp_path):
    folder = tmp_path / "study"
    words = ("demo", "--study", "--quick", "-o", folder)
    code, out, err = run(*words)
    assert code == 0
    assert "overconfident" in out
    assert err.strip().endswith("index.html")
    page = (folder / "index.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "calibrant demo --study --seed 0 --quick" in page
    assert page.index('id="effects"') < page.index('id="results"')
    for name in ("results.csv", "lens.svg", "tables/methods.tex", "tables/set-mixed.md", "tables/set-context.md"):
        assert (folder / name).stat().st_size > 100
    _, again, err = run(*words)  # everything is on disk, and says the same
    assert again == out
    assert "12 " in err
