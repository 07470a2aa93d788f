"""Policies on disk: `file` reads and writes them, `entries` checks each entry, `consistency` all of them together."""
