"""What an inspection counts and says, on the embedded sets; `tests/cli/test_data.py` looks at broken ones."""

import numpy as np

from calibrant.data import inspect, recognise


def test_counts_copies_and_progress():
    layout, root = recognise("scenes")
    calls = []
    options = {"samples": 40}
    inspection, datasets = inspect(
        layout, root, ["train", "val"], options=options, progress=lambda *call: calls.append(call)
    )
    assert inspection.samples == 80
    facts, data = inspection.splits["val"], datasets["val"]
    assert list(facts.class_counts.values()) == data.counts.tolist()
    assert facts.sizes == {"width_min": 32, "height_min": 32, "width_max": 32, "height_max": 32}
    assert facts.boxes["number"] == len(data.boxes.corners)
    assert sum(facts.boxes["area_histogram"]) == len(data.boxes.corners)
    assert sum(facts.boxes["objectness_histogram"]) == 40
    missing = {name for name, count in facts.class_counts.items() if count == 0}
    assert missing == {place for issue in facts.report.odd if "without samples" in issue.what for place in issue.where}
    assert inspection.to_json()["across_splits"] == []
    for what in ("images of train", "images of val", "copies in train", "copies in val"):
        assert [call[1:] for call in calls if call[0] == what] == [(done, 40) for done in range(41)]


def test_copies_are_found_by_their_bytes(tmp_path):
    pixels = np.zeros((4, 6, 6, 3), np.uint8)
    pixels[3] = 9  # the first three are the same image, with two labels
    np.savez(tmp_path / "data.npz", images=pixels, labels=[0, 1, 0, 1], ids=list("abcd"))
    layout, root = recognise(tmp_path / "data.npz")
    inspection, _ = inspect(layout, root, layout.splits(root))
    (issue,) = inspection.across.odd
    assert issue == ("identical samples with different labels", 1, ("a = b = c",))
    assert inspection.level == "poor"
