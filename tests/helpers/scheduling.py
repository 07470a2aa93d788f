"""Which tests run in the same process where there are several (``pytest -n 2 --dist loadgroup``).

A fixture of a module or of a session is made once in every process whose tests ask for it. So tests that may share one
stay together. xdist's own groups are names that it adds to the ids of tests, which pytest 9.2 no longer lets it do.
"""

import functools
import re

from xdist.scheduler import LoadScopeScheduling

_NAMED = re.compile(r'xdist_group\("(\w+)"\)')


class SharedFixtureScheduling(LoadScopeScheduling):
    """Tests that share what is slow to make go to one process, the largest groups first; others go one by one."""

    def _split_scope(self, nodeid):
        return group_of(self.config.rootpath, nodeid.partition("::")[0]) or nodeid

    def schedule(self):
        super().schedule()
        for node in self.nodes:  # a process begins a test when it knows of the next one
            self._reschedule(node)

    def remove_node(self, node):
        """Take the tests that a process leaves; if it crashed, the one that it ran, which is not run again.

        xdist alone gives the crashing test to the next process, and groups that are finished too: then processes wait
        for tests that never come.
        """
        work = self.assigned_work[node]
        crashed = next((test for group in work.values() for test, done in group.items() if not done), None)
        if crashed is not None:
            work[self._split_scope(crashed)][crashed] = True
        self.assigned_work[node] = {name: group for name, group in work.items() if not all(group.values())}
        super().remove_node(node)
        return crashed


@functools.cache
def group_of(root, file):
    """The group of a file's tests: by the name it gives, its folder's session, or itself; None if they share nothing.

    Args:
        root: of the repository.
        file: relative to it.
    """
    path = root / file
    text = path.read_text(encoding="utf-8")
    if named := _NAMED.search(text):
        return named[1]
    for folder in path.relative_to(root).parents[:-2]:  # a conftest.py of the whole suite holds nobody together
        settings = root / folder / "conftest.py"
        if settings.is_file() and 'scope="session"' in settings.read_text(encoding="utf-8"):
            return str(folder)
    return file if 'scope="module"' in text or _uses_module_fixture(path.parent / "conftest.py") else None


@functools.cache
def _uses_module_fixture(settings):
    return settings.is_file() and 'scope="module"' in settings.read_text(encoding="utf-8")
