"""Settings of the whole suite."""

from hypothesis import settings

# The same examples on every run, and no time limit on a loaded machine.
settings.register_profile("calibrant", deadline=None, derandomize=True)
settings.load_profile("calibrant")
