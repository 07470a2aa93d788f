"""Audit documents for the tests of the report: of real audits of drawn predictions, and with names as bad as can be."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np

from calibrant import Predictions, audit

Document = dict[str, Any]

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "\"quoted\" 'and' & <b>bold</b>",
    "javascript:alert(4)",
    "]]><!-- -->",
    "emoji 🦜👩‍👩‍👧 ✓",
    "\u202ertl override\u202c שלום مرحبا",
    "x" * 500,
    "line\nbreak\tand tab",
    "{{template}} ${expression} %s",
    " ",
]
CLASSES = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "lorry"]
#: Of the classes of pixels: some long enough to be cut.
LONG = [f"{name} " + "a name that goes on and on, " * 12 if k % 3 == 0 else name for k, name in enumerate(CLASSES[:5])]


def typed(words: str) -> str:
    """The text with the signs of a keyboard: tests are read and searched more easily so."""
    return words.translate({0x2212: "-", 0x2013: "none", 0xD7: "x", 0xA0: " "})


def drawn(samples: int, classes: int, heat: float, seed: int = 0, **facts: Any) -> Predictions:
    """A model that is too sure by ``heat``, more so of some classes than of others."""
    rng = np.random.default_rng(0)  # the labels of all models are those of the first
    z = 2.5 * rng.standard_normal((samples, classes))
    y = (z + rng.gumbel(size=z.shape)).argmax(1)
    z = heat * z + 0.5 * np.random.default_rng(seed).standard_normal(z.shape) * (seed > 0)
    z[:, : classes // 3] += 1.2
    names = CLASSES[:classes] + [f"class {k:04d}" for k in range(10, classes)]
    facts = {"ids": [f"img_{i:05d}.png" for i in range(samples)], "class_names": names} | facts
    return Predictions.from_logits(z, y, groups={"site": np.array(["north", "south", "east"])[np.arange(samples) % 3]},
                                   **facts)  # fmt: skip


@functools.cache
def _audited(name: str) -> Document:
    if name == "one":
        files = {"test.npz": drawn(3000, 10, 2.0)}
    elif name == "three":
        files = {
            "resnet50-ce.npz": drawn(2000, 10, 2.0, ids=np.arange(2000)),
            "resnet50-acls.npz": drawn(2000, 10, 1.05, 3, ids=np.arange(2000)),
            "vit-b16.npz": drawn(2000, 10, 0.7, 5, ids=np.arange(2000)),
        }
    elif name == "two":
        names = ("cifar100-resnet50-crossentropy-seed0.npz", "cifar100-resnet50-acls-seed0.npz")
        files = {names[0]: drawn(900, 10, 2.2), names[1]: drawn(900, 10, 1.05, 3)}
    elif name == "many":
        files = {"imagenet.npz": drawn(9000, 200, 1.2)}
    elif name == "confidence":
        rng = np.random.default_rng(4)
        confidence = rng.beta(4, 1.2, 400)
        files = {"conf.csv": Predictions.from_confidence(confidence, rng.random(400) < confidence**2)}
    elif name == "segmentation":
        rng = np.random.default_rng(6)
        z = 3 * rng.standard_normal((20, 5, 10, 20))
        y = (z + rng.gumbel(size=z.shape)).argmax(1)
        files = {"city.npz": Predictions.from_logits(1.5 * z, y, kind="segmentation", class_names=LONG)}
    elif name == "probabilities":  # three labels have probability 0
        p = np.tile([[0.7, 0.2, 0.1]], (400, 1))
        p[:3] = 0.0, 0.6, 0.4
        y = np.random.default_rng(2).choice(3, 400, p=[0.7, 0.2, 0.1])
        y[:3] = 0
        files = {"p.npz": Predictions.from_probabilities(p, y)}
    else:
        files = {"tiny.csv": Predictions.from_confidence([1.0], [True])}
    return audit(files, replicates=20, reproduce="calibrant audit test.npz -o report.html").document


def document(name: str = "one") -> Document:
    """The document of an audit, to be changed at will: one, two or three files, many classes, ..."""
    return hostile() if name == "hostile" else copy.deepcopy(_audited(name))


def hostile() -> Document:
    """Two files whose names, classes and ids are as bad as names can be, in every text of the document."""
    made = document("two")
    for k, m in enumerate(made["models"]):
        m["name"] = HOSTILE[8 * k]
        for part in ("classes_table", "labels_table"):
            for row, name in zip(m[part], HOSTILE, strict=False):
                row["name"] = name
        for k, row in enumerate(m["errors"]):
            row["id"], row["label"] = HOSTILE[k % len(HOSTILE)], HOSTILE[(k + 1) % len(HOSTILE)]
            row["predicted"] = HOSTILE[(k + 2) % len(HOSTILE)]
        for k, row in enumerate(m["groups"][0]["rows"]):
            row["name"] = HOSTILE[k]
        m["groups"][0]["column"] = HOSTILE[2]
        m["notes"], m["holds"] = list(HOSTILE), HOSTILE[3]
        m["metrics"][0].update(label=HOSTILE[1], help=HOSTILE[2], group=HOSTILE[3])
        m["findings"][0].update(title=HOSTILE[1], text=HOSTILE[2], evidence=HOSTILE[3])
        m["fixes"][0].update(repair=HOSTILE[1], fitted=HOSTILE[2], metric=HOSTILE[3])
        for k, c in enumerate(m["curves"]):
            c["label"], c["score"] = HOSTILE[k % len(HOSTILE)], HOSTILE[(k + 1) % len(HOSTILE)]
    made["title"], made["reproduce"] = HOSTILE[1], "calibrant audit '" + HOSTILE[0] + "' -o " + HOSTILE[8]
    made["verdict"].update(headline=HOSTILE[0], text=" ".join(HOSTILE))
    made["conventions"] = [[text, text] for text in HOSTILE]
    first, second = (m["name"] for m in made["models"])
    made["comparisons"][0].update(first=first, second=second)
    made["comparisons"][0]["rows"][0]["label"] = HOSTILE[2]
    return made
