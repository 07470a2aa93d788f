"""The pages about Hugging Face, MLflow and prediction sets: their blocks run where the package is installed."""

import re
from pathlib import Path

import numpy as np
import pytest

from calibrant import Policy
from calibrant.base import torchvision_operators

DOCS = Path(__file__).parents[2] / "docs"


def run_page(name):
    """Run the blocks of a page, one after the other, and give what they defined."""
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    names = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(compile(block, f"{name}.md", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_policy_behind_a_model_of_hugging_face(capsys):
    pytest.importorskip("transformers")
    torchvision_operators.ensure()
    names = run_page("huggingface")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    decided = names["policy"].decide(names["new"])
    assert [not line.startswith("one of ") for line in lines] == decided.accept.tolist()
    assert Policy.load("policy.json").class_names == ("negative", "neutral", "positive")


@pytest.mark.filterwarnings("ignore")
def test_audit_and_policy_in_a_run_of_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    # Files, because a database needs more than mlflow-skinny has.
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.setenv(name, (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    names = run_page("mlflow")
    run = mlflow.last_active_run()
    assert run.data.metrics["accuracy"] == pytest.approx(names["audited"].metrics["accuracy"])
    assert {"audit.html", "policy.json"} <= {
        file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)
    }
    labels, _, accept = names["policy"].decide(2 * names["honest"][:8])
    np.testing.assert_array_equal(names["answers"], np.where(accept, labels, -1))


@pytest.mark.slow
def test_the_page_of_prediction_sets_says_what_its_block_prints(capsys):
    run_page("sets")
    coverage, size = capsys.readouterr().out.splitlines()[:2]
    page = (DOCS / "sets.md").read_text(encoding="utf-8")
    assert f"# {float(coverage):.3f}: the share of sets" in page
    assert f"# {float(size):.2f} classes in a set" in page


def test_the_page_of_documents_names_every_schema():
    from calibrant.cli.schema import SCHEMAS

    page = (DOCS / "json.md").read_text(encoding="utf-8")
    for command, schema in SCHEMAS.items():
        assert f"| `{command}` | `{schema['properties']['format']['const']}` |" in page
