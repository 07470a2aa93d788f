from calibrant.experiments.papers import items


def test_items_are_of_this_paper():
    assert all(item.make.__module__.endswith(".acls") for item in items().values() if item.name.startswith("acls."))
