"""The global pooling network for texts, as Mukhoti2020 and MbLS train it on 20 Newsgroups."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor, nn

from calibrant.base.checks import check_flag, check_size
from calibrant.models.registry import register

SPREAD = 0.1  # of word vectors that start at random
#: Words that the three convolutions and two max-pools, each of 5, take off a text, and the one that must be left.
SHORTEST = 21


class GlobalPoolingCNN(nn.Module):
    """Word vectors, three convolutions with two max-pools between them, the maximum over the text, two linear layers.

    ``embedding`` maps word indices to vectors; without it the network takes vectors.
    """

    def __init__(self, num_classes: int, dimensions: int, embedding: nn.Embedding | None):
        super().__init__()
        self.dimensions = dimensions
        self.embedding = embedding
        self.conv1, self.conv2, self.conv3 = (nn.Conv1d(width, 128, 5) for width in (dimensions, 128, 128))
        self.fc1, self.fc2 = nn.Linear(128, 128), nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, C] of word indices [N, L], or of vectors [N, L, D] when there is no embedding."""
        if self.embedding is not None:
            if x.dim() != 2 or x.is_floating_point():
                raise ValueError(f"the gpcn takes word indices [N, L], got {x.dtype} of shape {list(x.shape)}")
            x = self.embedding(x)
        elif x.dim() != 3 or x.shape[2] != self.dimensions:
            raise ValueError(f"the gpcn takes word vectors [N, L, {self.dimensions}], got shape {list(x.shape)}")
        if x.shape[1] < SHORTEST:
            raise ValueError(f"the gpcn takes texts of at least {SHORTEST} words, padding included, got {x.shape[1]}")
        x = F.max_pool1d(F.relu(self.conv1(x.transpose(1, 2))), 5, stride=1)
        x = F.max_pool1d(F.relu(self.conv2(x)), 5, stride=1)
        x = F.relu(self.conv3(x)).amax(2)
        return self.fc2(F.relu(self.fc1(x)))


@register(
    "gpcn",
    task="text",
    summary="global pooling CNN over word vectors, for 20 Newsgroups",
    source="Lin et al. 2014 (Network in Network), as in Mukhoti2020's and MbLS's code",
    input_size=(1000,),
    num_classes=20,
    published=247_316,
    published_in="by hand from the released code, word vectors left out",
)
def gpcn(
    num_classes: int,
    *,
    vectors: ArrayLike | Tensor | None = None,
    vocabulary_size: int | None = None,
    dimensions: int = 100,
    frozen: bool | None = None,
) -> nn.Module:
    """The network with an embedding of ``vectors`` [V, D] (`calibrant.data.read_glove`), or of ``vocabulary_size``.

    Without either it takes word vectors as its input, as the released code does. ``frozen`` keeps the embedding as it
    is; if left out, vectors that are given are frozen, and an embedding that starts at random is trained.
    """
    embedding = None
    if vectors is not None:
        try:
            values = torch.as_tensor(vectors, dtype=torch.get_default_dtype())
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"vectors must be a table [V, D] of numbers, got {type(vectors).__name__}") from None
        if values.dim() != 2 or not values.numel():
            raise ValueError(f"vectors must be a table [V, D] of numbers, got shape {list(values.shape)}")
        if vocabulary_size not in (None, len(values)):
            raise ValueError(f"vectors has {len(values)} rows, and vocabulary_size is {vocabulary_size}")
        embedding = nn.Embedding.from_pretrained(values.clone(), freeze=False, padding_idx=0)
        dimensions = values.shape[1]
    elif vocabulary_size is not None:
        embedding = nn.Embedding(
            check_size("vocabulary_size", vocabulary_size, 2), check_size("dimensions", dimensions), 0
        )
        # Short vectors: steps of Adam's size hardly change those of deviation 1, which nn.Embedding starts with.
        embedding.weight.data.mul_(SPREAD)
    elif frozen is not None:
        raise ValueError(f"frozen={frozen} is about an embedding: give vectors or vocabulary_size")
    if embedding is not None:
        embedding.weight.requires_grad_(not (vectors is not None if frozen is None else check_flag("frozen", frozen)))
    return GlobalPoolingCNN(num_classes, check_size("dimensions", dimensions), embedding)
