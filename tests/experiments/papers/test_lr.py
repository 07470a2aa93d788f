import numpy as np

from calibrant.experiments.papers import find_item


def test_loss_curves_are_those_of_the_formulas(bench):
    axis = find_item("lr.fig2").make(bench).figures["fig2"].axes[0]
    curves = {line.get_label(): (np.array(line.get_xdata()), np.array(line.get_ydata())) for line in axis.get_lines()}
    p, ce = curves["cross-entropy"]
    np.testing.assert_allclose(ce, -np.log(p), rtol=1e-6)
    np.testing.assert_allclose(curves["label smoothing"][1], -0.95 * np.log(p) - 0.05 * np.log(1 - p), rtol=1e-6)
    relaxed = np.where(p >= 0.9, 0, 0.9 * np.log(0.9 / p) + 0.1 * np.log(0.1 / (1 - p)))
    np.testing.assert_allclose(curves["label relaxation"][1], relaxed, atol=1e-9)
