"""The network for texts against a slow NumPy version."""

import numpy as np
import pytest
import torch

from calibrant.models import build
from tests.helpers.networks import count


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def slow_gpcn(model, x):
    """NumPy, window by window, from the description in MbLS's released code."""
    get = {name: p.detach().numpy() for name, p in model.named_parameters()}

    def windows(x):  # [L, D] to [L - 4, 5, D]
        return np.stack([x[i : i + 5] for i in range(len(x) - 4)])

    rows = []
    for one in x:
        for layer in ("conv1", "conv2", "conv3"):
            one = np.einsum("lkd,odk->lo", windows(one), get[f"{layer}.weight"]) + get[f"{layer}.bias"]
            one = np.maximum(one, 0)
            if layer != "conv3":
                one = windows(one).max(1)
        one = np.maximum(get["fc1.weight"] @ one.max(0) + get["fc1.bias"], 0)
        rows.append(get["fc2.weight"] @ one + get["fc2.bias"])
    return np.stack(rows)


@pytest.mark.parametrize("length", [21, 30])
def test_gpcn_is_the_released_network(length):
    rng = np.random.default_rng(0)
    vectors, words = rng.integers(-9, 9, size=(11, 6)) / 8, rng.integers(0, 11, size=(3, length))
    plain = build("gpcn", dimensions=6, num_classes=4).double()
    model = build("gpcn", vectors=vectors, num_classes=4).double()
    model.load_state_dict(plain.state_dict(), strict=False)
    expected = slow_gpcn(plain, vectors[words])
    np.testing.assert_allclose(model(torch.from_numpy(words)).detach(), expected, atol=1e-12)
    np.testing.assert_allclose(plain(torch.from_numpy(vectors[words])).detach(), expected, atol=1e-12)


def test_gpcn_freezes_given_vectors_unless_told_otherwise():
    vectors = np.ones((5, 3), np.float32)
    given, told = build("gpcn", vectors=vectors), build("gpcn", vectors=vectors, frozen=False)
    random, kept = build("gpcn", vocabulary_size=5), build("gpcn", vocabulary_size=5, frozen=True)
    assert [one.embedding.weight.requires_grad for one in (given, told, random, kept)] == [False, True, True, False]
    given(torch.randint(0, 5, (3, 25))).square().sum().backward()
    assert [key for key, p in given.named_parameters() if p.grad is None] == ["embedding.weight"]
    assert count(given) - 15 == 247_316 - 97 * 128 * 5  # three dimensions for a hundred
    for wrong, words in [
        ({"vectors": np.ones(3)}, r"must be a table \[V, D\] of numbers, got shape \[3\]"),
        ({"vectors": vectors, "vocabulary_size": 6}, "vectors has 5 rows, and vocabulary_size is 6"),
        ({"vectors": (vectors, 0.5)}, r"must be a table \[V, D\] of numbers, got tuple"),
        ({"frozen": True}, "frozen=True is about an embedding"),
        ({"vectors": vectors, "frozen": 1}, "frozen must be True or False, got 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            build("gpcn", **wrong)
    for model, texts, words in [
        (given, torch.zeros(2, 20, dtype=torch.long), "at least 21 words, padding included, got 20"),
        (given, torch.zeros(2, 30), r"word indices \[N, L\], got torch.float32"),
        (build("gpcn"), torch.zeros(2, 30), r"word vectors \[N, L, 100\], got shape \[2, 30\]"),
    ]:
        with pytest.raises(ValueError, match=words):
            model(texts)


def test_word_vectors_start_short_and_padding_is_zero():
    """Vectors of deviation 1 would hardly change within an epoch of Adam's steps."""
    weight = build("gpcn", num_classes=20, vocabulary_size=3000).embedding.weight.detach()
    assert weight[1:].std().item() == pytest.approx(0.1, rel=0.02)
    assert not weight[0].any()
