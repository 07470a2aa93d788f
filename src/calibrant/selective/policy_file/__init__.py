"""Policies on disk: `file` reads and writes them.

What each entry must be is said in `policy_entries`, `promise_entries` and `set_entries`, by the types of `entry_types`;
`consistency` checks what no entry can say alone.
"""
