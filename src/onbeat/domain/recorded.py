"""What is left of a range of planned instants where some of them have a record already. Pure.

A clock shows no instant that has a record. Where one does after all (it was written by hand, or came with a database
that was put back), runs are told by their identity, and ranges by this.
"""

from __future__ import annotations

from collections.abc import Iterator

from onbeat.domain.misfire import InstantRange, Instants

Spans = tuple[tuple[int, int], ...]
"""Instants that have a record, as first and last of each record; in any order, and they may overlap."""


def without_recorded(timetable: Instants, found: InstantRange, recorded: Spans) -> Iterator[InstantRange]:
    """The pieces of a range between the records, oldest first. `found` holds every instant of the timetable in it, or
    lacks such as are recorded.
    """
    after = found.first - 1
    for first, last in (*sorted(recorded), (found.last + 1, found.last + 1)):
        until = min(first - 1, found.last)
        if until > after:
            start, end = timetable.next_after(after), timetable.latest(after, until)
            if start is not None and end is not None:
                yield InstantRange(start, end, timetable.count(after, until))
        after = max(after, last)
