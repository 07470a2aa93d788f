"""Prediction sets on the page of an audit: the numbers of the document, and no markup out of names."""

from calibrant.report.html.audit_tables import prediction_sets


def part(classes):
    rows = [
        {"label": "Sets with the true class", "value": 0.942, "low": 0.93, "high": 0.95, "unit": "share", "note": ""}
    ]
    return {"rows": rows, "classes": classes}


def test_shares_with_intervals_lowest_class_first():
    classes = [
        {"name": "cat", "samples": 1200, "value": 0.97, "low": 0.95, "high": 0.98},
        {"name": "<b>dog", "samples": 300, "value": 0.9, "low": 0.87, "high": 0.92},
    ]
    page = prediction_sets(part(classes))
    assert "94.20%" in page
    assert "1,200" in page.replace("\u202f", ",").replace("\u2009", ",")
    assert page.index("dog") < page.index("cat")
    assert "<b>dog" not in page


def test_of_many_classes_the_lowest_are_shown():
    classes = [{"name": f"class{k}", "samples": 9, "value": k / 50, "low": 0.0, "high": k / 50} for k in range(50)]
    page = prediction_sets(part(classes))
    assert "the 30 lowest of 50" in page
    assert "class29<" in page
    assert "class30<" not in page
