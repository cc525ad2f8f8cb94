"""The engine's SQL, one file per noun.

Statements name their parameters; bindings are tuples in the order in which the names first appear, since binding by
name costs a look-up per value.
"""

from __future__ import annotations

from onbeat.store.named_queries import load_named_queries


def load_queries(noun: str) -> dict[str, str]:
    """The statements of `queries/{noun}.sql` by name."""
    return load_named_queries(__name__, noun)
