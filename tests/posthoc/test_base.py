"""Data to fit on, of every make and form; the place in scikit-learn's pipelines."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from calibrant import Predictions
from calibrant.posthoc import HistogramBinning, LogitNorm, MatrixScaling, TemperatureScaling
from tests.helpers.calibrators import drawn


def test_arrays_of_every_make():
    z, y = drawn(300, 4, 1, scale=2.0)
    z, y = z.numpy(), y.numpy()
    whole = TemperatureScaling().fit(z, y).temperature_
    frozen = z.copy()
    frozen.setflags(write=False)
    for same, labels in (
        (z[::-1], y[::-1]),
        (z.astype(">f8"), y.astype(">i8")),
        (np.asfortranarray(z), y),
        (frozen, y),
    ):
        assert TemperatureScaling().fit(same, labels).temperature_ == pytest.approx(whole, rel=1e-9)
    tracked = torch.from_numpy(z).requires_grad_()
    assert TemperatureScaling().fit(tracked, y).temperature_ == whole


def test_inside_a_pipeline_of_scikit_learn():
    z, y = drawn(300, 4, 1, scale=2.0)
    pipe = make_pipeline(TemperatureScaling())
    assert np.allclose(pipe.fit(z.numpy(), y.numpy()).transform(z.numpy()), TemperatureScaling().fit(z, y).transform(z))
    assert np.allclose(pipe.fit_transform(z.numpy(), y.numpy()), pipe.transform(z.numpy()))
    chosen = clone(TemperatureScaling("ece", grid=np.array([1.0, 2.0]), bins=np.int64(10)))
    assert chosen.fit(z, y).temperature_ == 2
    assert "grid=array" in repr(chosen)


def masks():
    """Images with a border of void, and the same pixels as rows."""
    rng = np.random.default_rng(3)
    honest = 2 * rng.standard_normal((7, 4, 5, 6))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    labels[:, :, 0] = 255
    rows = np.moveaxis(honest, 1, -1)[labels != 255]
    return 2 * honest, labels, 2 * rows, labels[labels != 255]


@pytest.mark.parametrize(
    "make", [TemperatureScaling, LogitNorm, lambda: TemperatureScaling("ece"), lambda: TemperatureScaling(grid="mbls")]
)
def test_masks_and_files_are_fitted_as_rows_are(make, tmp_path):
    z, y, rows, labels = masks()
    found = [
        make().fit(rows, labels),
        make().fit(z, y, ignore_index=255),
        make().fit(torch.from_numpy(z), torch.from_numpy(y), ignore_index=255),
        make().fit(Predictions.from_logits(z, y, kind="segmentation", ignore_index=255)),
        make().fit(Predictions.from_logits(rows, labels)),
    ]
    Predictions.from_logits(rows, labels).save(tmp_path / "rows.parquet")
    found.append(make().fit(Predictions.open(tmp_path / "rows.parquet")))
    p = np.exp(rows) / np.exp(rows).sum(1, keepdims=True)
    if not isinstance(found[0], LogitNorm):
        found.append(make().fit(Predictions.from_probabilities(p, labels)))
    if isinstance(found[0], LogitNorm):
        assert all(one.p_ == found[0].p_ and one.aurc_ == pytest.approx(found[0].aurc_) for one in found)
    else:
        learned = [one.temperature_ for one in found]
        assert learned == pytest.approx([learned[0]] * len(learned), rel=1e-9)


def test_masks_keep_their_layout():
    z, y, rows, labels = masks()
    scaling, norm = TemperatureScaling().fit(rows, labels), LogitNorm().fit(rows, labels)
    assert np.allclose(scaling.transform(z), z / scaling.temperature_)
    assert scaling.predict_proba(z).sum(1) == pytest.approx(np.ones((7, 5, 6)))
    data = Predictions.from_logits(z, y, kind="segmentation", ignore_index=255, ids=list("abcdefg"))
    changed = scaling.transform(data)
    assert changed.kind == "segmentation"
    assert changed.ids.tolist() == list("abcdefg")
    assert np.allclose(changed.logits, z / scaling.temperature_)
    assert norm.score(z).shape == (7, 5, 6)
    assert np.array_equal(norm.score(data), norm.score(z))
    assert np.array_equal(norm.score(Predictions.from_logits(rows, labels)), norm.score(rows))


def test_transformed_predictions_keep_the_positive_class():
    p = np.random.default_rng(0).uniform(size=50)
    data = Predictions.from_probabilities(p, np.where(p > 0.4, "yes", "no"), positive="no", split="val")
    changed = TemperatureScaling().fit(data).transform(data)
    assert (changed.class_names, changed.positive, changed.split) == (data.class_names, data.positive, "val")
    assert data.class_names[data.positive] == "no"


def test_defaults_are_those_of_the_docs():
    assert HistogramBinning().bins == 15
    matrix = MatrixScaling()
    assert (matrix.off_diagonal, matrix.intercept, matrix.strength) == (0.5, 0.01, 0.1)
