import numpy as np
import pytest
import torch

from calibrant.training import last_epoch, predict_run, train
from calibrant.training.recipe import check_recipe, replaced

PLAIN = {
    "data": {"layout": "digits", "val": None, "hold_out": {"fraction": 0.2}},
    "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [8]},
    "loss": {"name": "crl"},
    "optimiser": {"rate": 0.1},
    "training": {"epochs": 2, "batch_size": 100, "drop_last": False},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "crl"
    train(check_recipe(PLAIN, "here"), folder, accelerator="cpu")
    return folder


def test_the_memory_of_the_loss_comes_back(run):
    epoch = last_epoch(run)
    assert int(epoch.loss.history.epochs) == 2
    counts = epoch.loss.history.counts
    assert len(counts) == len(epoch.labels) == len(epoch.logits)
    assert 0 < int(counts.sum()) <= 2 * len(counts)
    terms = epoch.loss.terms(epoch.logits[:50], epoch.labels[:50], ids=torch.arange(50))
    assert float(terms["regulariser"]) > 0
    # Correctness as the released code normalises it, by hand.
    c = (counts - counts.min()).double() / max(1, 2 - int(counts.min()))
    torch.testing.assert_close(epoch.loss.history.correctness(torch.arange(len(counts))), c)


def test_every_training_sample_is_in_one_batch_of_the_last_epoch(run):
    epoch = last_epoch(run)
    order = torch.cat(epoch.order)
    assert sorted(order.tolist()) == list(range(len(epoch.labels)))
    assert order.tolist() != list(range(len(epoch.labels)))
    sizes = {len(ids) for ids in epoch.order[:-1]}
    assert sizes == {100}
    for z, labels, ids in epoch.batches():
        assert torch.equal(z, epoch.logits[ids])
        assert torch.equal(labels, epoch.labels[ids])


def test_logits_are_those_of_the_last_checkpoint(run):
    epoch = last_epoch(run)
    train_logits = epoch.logits.numpy()
    whole = predict_run(run, split="train", checkpoint="last")
    known = {row.tobytes() for row in np.round(np.asarray(whole.logits), 4)}
    assert all(row.tobytes() in known for row in np.round(train_logits, 4)[:20])


def test_without_a_checkpoint_it_is_one_sentence(run, tmp_path):
    with pytest.raises(ValueError, match="not a run folder"):
        last_epoch(tmp_path)


def test_a_memory_of_another_loss_is_refused(run, tmp_path):
    import shutil

    folder = shutil.copytree(run, tmp_path / "copy")
    other = replaced(check_recipe(PLAIN, "here"), {"loss": {"name": "ce"}})
    (folder / "recipe.json").write_text(other.model_dump_json())
    with pytest.raises(ValueError, match="not a checkpoint of this run"):
        last_epoch(folder)
