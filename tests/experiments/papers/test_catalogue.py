import subprocess
import sys

import pytest

from calibrant.experiments.papers import find_item, items
from calibrant.experiments.papers.catalogue import MAKERS, PAPERS
from calibrant.recipes import names


def test_every_item_says_what_it_is_and_has_a_maker():
    for name, item in items().items():
        assert name == item.name == name.lower()
        assert item.paper in PAPERS
        assert item.section or item.stem.startswith(("fig", "table"))
        assert item.title[0].isupper()
        assert not item.title.endswith(".")
        assert item.minutes > 0
        assert item.make.__doc__
        assert set(item.recipes) <= set(names())
    assert set(MAKERS) == set(items())  # and nothing is made that the list does not have


def test_items_stand_in_the_order_of_the_papers():
    papers = [item.paper for item in items().values()]
    assert papers == sorted(papers, key=PAPERS.index)


def test_a_name_is_found_whatever_its_case_and_a_wrong_one_gets_the_nearest():
    assert find_item("ACLS.table3").place == "ACLS, Table 3"
    with pytest.raises(ValueError, match=r"'acls.tabel3'.*did you mean 'acls.table3'"):
        find_item("acls.tabel3")


def test_the_list_imports_nothing_heavy():
    code = "import sys; from calibrant.experiments import papers; papers.items(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
