"""``calibrant schema``: a schema, a list of them, or one sentence."""

import json

from calibrant.cli.document_schemas import SCHEMAS
from tests.helpers.policies import run


def test_a_schema_is_printed(capsys):
    code, out, _ = run(capsys, "schema", "apply")
    assert code == 0
    assert json.loads(out) == SCHEMAS["apply"]


def test_the_list_names_format_and_version(capsys):
    _, out, _ = run(capsys, "schema")
    assert ["fit", "calibrant.policy", "1"] in [line.split()[:3] for line in out.splitlines()]
    _, out, _ = run(capsys, "schema", "--json")
    assert json.loads(out)["audit"] == "urn:calibrant:audit:1"


def test_another_name_ends_with_code_2(capsys):
    code, _, err = run(capsys, "schema", "aplly")
    assert code == 2
    assert "no schema for 'aplly'; there are apply, audit" in err
