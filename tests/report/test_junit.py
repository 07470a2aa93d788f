from xml.etree import ElementTree

import pytest

from calibrant.report import workflow_lines, write_junit

JUDGEMENTS = [
    {"requirement": "ece <= 0.03", "group": "", "status": "pass", "text": "passes"},
    {"requirement": "ece <= 0.03", "group": "site=<a> & \x00", "status": "unknown", "text": 'cannot "tell" <&>'},
    {"requirement": "accuracy >= 0.9", "group": "", "status": "fail", "text": "fails: 80%\nno"},
]


@pytest.mark.parametrize(("unknown", "failures", "skipped"), [("fail", 2, 0), ("pass", 1, 1)])
def test_a_case_for_every_requirement(tmp_path, unknown, failures, skipped):
    write_junit(tmp_path / "out.xml", "test.npz", JUDGEMENTS, unknown=unknown)
    suite = ElementTree.parse(tmp_path / "out.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", str(failures), str(skipped))
    assert len(suite.findall("testcase/failure")) == failures
    assert suite.findall("testcase")[1].get("name") == "ece <= 0.03 [site=<a> & \ufffd]"


def test_annotations_end_where_their_line_does():
    lines = workflow_lines(JUDGEMENTS)
    assert [line.partition(" ")[0] for line in lines] == ["::warning", "::error"]
    assert lines[1] == "::error title=accuracy >= 0.9::fails: 80%25%0Ano"
