"""The page of the papers' tables and figures, from the registry that makes them."""

from __future__ import annotations

from collections.abc import Iterator

from calibrant.experiments import papers
from calibrant.training import load

TEXT = """# Tables and figures of the papers

`calibrant paper` makes every table and figure below by its name: on the paper's data where you have them, in small
where you have not, or from runs that are finished.

```bash
calibrant paper list
calibrant paper acls.table3 --small
calibrant paper acls.table3 --data DIR -o papers
calibrant paper lr.table3 --runs results/mnist results/fashion
```

- `--data DIR` trains every method of the table as the paper does, by the recipes named below, for each seed. All data
  of the item are read before the first run is trained, and a part of a data set is refused. `--data NAME=DIR` names the
  folder of one data set, as often as needed: `--data mnist=A --data fashion-mnist=B`. Without names, layouts tell data
  sets apart, and the labels (or else the path) MNIST from Fashion-MNIST, whose files have the same names.
- `--small` keeps what makes each method that method (its loss with every value, its targets, its mixing) and takes
  scenes of 16 x 16 pixels that are drawn, and a network of two layers (activation maps: 32 x 32 and convolutions). Its
  numbers say nothing about the papers' data.
- `--runs` takes folders of runs or of comparisons instead. A run fills a column only if its data set (layout, classes
  and number of samples), its network and its method (loss, targets, mixing and share of images without an object) are
  that column's; a folder that fits none is named and refused. Other settings of the training may differ, and the notes
  say which. Rows without runs are left out. Ranks (`lr.table3`) are over the data sets that have runs.

All items of one output folder share their runs; what is on disk is not computed again. Each has a folder of its own:
the table as md, tex, csv and html, the figure as svg, pdf and png, the printed numbers beside ours with the difference,
and a page, `index.html`, whose notes give in numbers what is seen.

Minutes are those of `--small` with three seeds on two cores, into a new folder: 7 seconds of one core for each run.
"""
HEAD = "| name | shows | in the paper | data | recipes | minutes |\n|:--|:--|:--|:--|:--|--:|\n"


def papers_page() -> str:
    """The text of the page."""
    return f"{TEXT}\n{HEAD}" + "".join(_rows())


def _rows() -> Iterator[str]:
    for name, item in papers.items().items():
        data = ", ".join(dict.fromkeys(load(recipe).data.layout for recipe in item.recipes)) or "none"
        recipes = ", ".join(f"`{recipe}`" for recipe in item.recipes) or "none"
        yield f"| `{name}` | {item.title} | {item.place} | {data} | {recipes} | {item.minutes:g} |\n"
