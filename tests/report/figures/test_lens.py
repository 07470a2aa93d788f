"""The figure of the lens: the same each time, and of the labels it is given."""

import numpy as np
import pytest

from calibrant.report import draw_lens

PROBS, TARGET = np.array([0.9, 0.06, 0.04]), np.array([1.0, 0.0, 0.0])
EFFECTIVE = {"ls": np.array([0.9, 0.05, 0.05]), "acls $6": np.array([0.7, 0.4, -0.1])}


@pytest.mark.parametrize("sweep", [None, (np.linspace(0.4, 0.9999, 20), {k: np.linspace(0, 1, 20) for k in EFFECTIVE})])
def test_the_lens_is_drawn_the_same_each_time(tmp_path, sweep):
    contents = set()
    for name in ("a.svg", "b.svg"):
        draw_lens(
            tmp_path / name, logits=[5, 2, 1], label=0, probs=PROBS, target=TARGET, effective=EFFECTIVE, sweep=sweep
        )
        contents.add((tmp_path / name).read_bytes())
    assert len(contents) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a figure is written as .png, .svg, .pdf, got '.gif'"):
        draw_lens(tmp_path / "x.gif", logits=[1, 0], label=0, probs=PROBS, target=TARGET, effective={})
