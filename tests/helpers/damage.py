"""Damage to files."""

from hypothesis import strategies as st


def changes(tokens):
    """Where (as a share of the file), what, and how many bytes it replaces; some of them for each file."""
    return st.lists(
        st.tuples(
            st.floats(0, 1),
            st.one_of(st.sampled_from(tokens), st.binary(max_size=6)),
            st.sampled_from([0, 1, 4, 100, 10**9]),
        ),
        min_size=1,
        max_size=4,
    )
