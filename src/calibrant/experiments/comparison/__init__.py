"""A comparison from its plan to its page: the folder, the runs, the tables on disk."""
