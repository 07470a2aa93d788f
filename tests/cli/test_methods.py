"""``calibrant methods``: all losses, or one with its parameters."""

import json


def test_methods(run):
    code, out, _ = run("methods")
    assert code == 0
    assert "ACLS" in out
    code, out, _ = run("methods", "acls", "--json")
    (method,) = json.loads(out)
    assert method["parameters"]["margin"]["default"] == 10.0
    code, out, _ = run("methods", "acls")
    assert "lambda2" in out
