"""Sizes of networks are refused before memory is taken for them, and what fits is built as before."""

import resource
import zipfile

import pytest
import torch

from calibrant.models import build, describe, names
from calibrant.models.size import check_size, physical_memory


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mlp", {"hidden": [10**6, 10**6]}, r"its 1,000,\d+,\d+,\d+ parameters and their gradients take"),
        ("mlp", {"hidden": [10**9, 10**9]}, "this machine has"),
        ("mlp", {"hidden": 10**9, "input_size": 10**9}, "model 'mlp'"),
        ("mlp", {"hidden": [8] * 1001}, "hidden must have at most 1000 numbers, got 1001"),
        ("mlp", {"hidden": 10**18}, "hidden must be a whole number of at most 1,000,000,000, got 1,000,000"),
        ("mlp", {"input_size": [10**9] * 9}, "the product of input_size must be a whole number of at most"),
        ("small_cnn", {"width": 10**9}, "larger than any memory"),
        ("small_resnet", {"width": 10**7}, "this machine has"),
        ("deeplabv3plus_small", {"width": 10**7}, "this machine has|larger than any memory"),
        ("resnet18", {"in_channels": 10**9}, "this machine has"),
        ("vit_s_16", {"image_size": 16 * 10**6}, "this machine has|larger than any memory"),
        ("gpcn", {"vocabulary_size": 10**9, "dimensions": 10**5}, "this machine has|larger than any memory"),
        ("mlp", {"num_classes": 10**9, "hidden": 10**4}, "this machine has"),
    ],
)
def test_what_does_not_fit_into_memory_is_refused(name, options, words):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=words) as caught:
        build(name, **options)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # kilobytes: less than a gigabyte


def test_the_bound_is_the_memory_of_this_machine(monkeypatch):
    monkeypatch.setattr("calibrant.models.size.physical_memory", lambda: 8 * 25)
    check_size("linear", lambda: torch.nn.Linear(4, 5))  # 25 parameters
    with pytest.raises(ValueError, match="its 30 parameters"):
        check_size("linear", lambda: torch.nn.Linear(5, 5))
    assert physical_memory() > 2**28


def test_looking_at_the_size_draws_no_random_numbers():
    torch.manual_seed(3)
    check_size("mlp", lambda: torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Dropout(0.5)))
    drawn = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(3))


@pytest.mark.parametrize("name", [name for name in names() if name.startswith(("mlp", "small", "gpcn", "resnet20"))])
def test_options_of_a_wrong_type_name_the_model(name):
    for option in describe(name).defaults():
        for value in ({"a": 1}, object()):
            with pytest.raises(ValueError, match=f"model '{name}'"):
                build(name, **{option: value})


def test_an_archive_that_would_grow_is_refused(tmp_path):
    """torch.save compresses nothing; a small archive of zeros could fill the memory."""
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data/0", bytes(2**24))
    assert path.stat().st_size < 2**16
    with pytest.raises(ValueError, match="writes no compressed archives"):
        build("mlp", weights=path)
