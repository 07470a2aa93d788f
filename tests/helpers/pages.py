"""A page of every kind, and what a page consists of, read without a browser."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import Policy, Predictions, audit
from calibrant.report import (
    PaperPart,
    write_activation_page,
    write_audit,
    write_comparison,
    write_data_page,
    write_demonstration,
    write_maps_page,
    write_paper_page,
    write_watch,
)
from tests.helpers import page_documents as documents
from tests.helpers.audit_document import HOSTILE, document
from tests.helpers.image_maps import image_maps

VOID = {"meta", "input", "br", "hr", "img", "link"}
#: The one address of a page: of nothing, so that no browser asks for an icon.
ICON = {"rel": "icon", "href": "data:,"}


class Tree(HTMLParser):
    """What a page consists of: every element with its attributes and its text, and whether all of them were closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.feed(page)
        self.close()
        assert not self.open, [e["tag"] for e in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = {"tag": tag, "attrs": dict(attrs), "text": "", "parents": list(self.open)}
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {tag} {attrs}"
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()["tag"] == tag, f"{tag} closed out of turn"

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element["text"] += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, Any]]:
        """The elements of a tag; ``of_class`` is one of the words of their class, other attributes are whole."""
        found = [e for e in self.elements if e["tag"] == tag]
        if (word := attributes.pop("of_class", None)) is not None:
            found = [e for e in found if word in (e["attrs"].get("class") or "").split()]
        return [e for e in found if all(e["attrs"].get(name) == value for name, value in attributes.items())]

    def one(self, tag: str, **attributes: str) -> dict[str, Any]:
        (element,) = self.all(tag, **attributes)
        return element

    def inside(self, parent: dict[str, Any], tag: str) -> list[dict[str, Any]]:
        return [e for e in self.elements if e["tag"] == tag and any(p is parent for p in e["parents"])]

    def children(self, parent: dict[str, Any]) -> list[dict[str, Any]]:
        return [e for e in self.elements if e["parents"] and e["parents"][-1] is parent]

    def sections(self) -> list[str]:
        return [e["attrs"]["id"] for e in self.all("section") if "id" in e["attrs"]]


def with_policy(path: Path) -> None:
    data = Predictions.from_logits(
        *_logits(3.0), class_names=["cat", "dog", "bird", "recreational vehicle", "wardrobe"]
    )
    settings = {"replicates": 20, "reproduce": "calibrant audit test.npz --policy policy.json"}
    audit({"test.npz": data}, policy=Policy.fit(data, target_risk=0.3), **settings).to_html(path)


def of_a_rare_event(path: Path) -> None:
    rng = np.random.default_rng(3)
    happens = rng.random(600) < 0.2
    claimed = np.clip(0.15 + 0.5 * happens + 0.2 * rng.normal(size=600), 0.001, 0.999)
    data = Predictions.from_probabilities(claimed, happens.astype(int))
    audit({"loans.csv": data}, replicates=20, reproduce="calibrant audit loans.csv").to_html(path)


def _logits(scale: float) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 5, 400)
    return scale * (rng.normal(size=(400, 5)) * 2 + 2 * np.eye(5)[labels]), labels


def paper(path: Path) -> None:
    table = PaperPart("Table 1", text="One run each.", table=documents.results_table(["ce", "ls"]))
    write_paper_page(
        path, title="Table 1", lead="Made again.", parts=[table], notes=["A note."], files=["t.csv"],
        command="calibrant paper acls --table 1 --output a/folder/with/a/name/of/some/length",
    )  # fmt: skip


def data_set(path: Path, words: str = "cup") -> None:
    made, sheets = documents.data_set(words), {words: documents.sheet(words)}
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        write_data_page(Path(folder) / "page", made, sheets)
        (Path(folder) / "page" / "index.html").rename(path)


def of_audit(name: str) -> Callable[[Path], None]:
    return lambda path: write_audit(path, document(name))


AUDITS = ("one", "two", "three", "many", "confidence", "segmentation", "probabilities", "minimal", "hostile")
#: What writes a page, by its kind.
WRITERS: dict[str, Callable[[Path], None]] = {name: of_audit(name) for name in AUDITS} | {
    "policy": with_policy,
    "binary": of_a_rare_event,
    "comparison": lambda path: write_comparison(path, documents.comparison()),
    "short comparison": lambda path: write_comparison(path, documents.comparison(["ce", "ls"], 1)),
    "hostile comparison": lambda path: write_comparison(path, documents.hostile_comparison()),
    "minimal comparison": lambda path: write_comparison(path, documents.minimal_comparison()),
    "demonstration": lambda path: write_demonstration(path, documents.demonstration()),
    "data": data_set,
    "hostile data": lambda path: data_set(path, HOSTILE[1]),
    "paper": paper,
    "activation": lambda path: write_activation_page(path, documents.activations(), documents.pictures()),
    "maps": lambda path: write_maps_page(
        path, image_maps(), created="today", command="calibrant maps runs/ce --image a"
    ),
    "watch": lambda path: write_watch(path, documents.watch()),
}


def page_of(write: Callable[..., None], folder: Path, *content: Any) -> str:
    """The text of the page that something writes."""
    write(folder / "page.html", *content)
    return (folder / "page.html").read_text(encoding="utf-8")
