"""Rows that one statement takes together: every value arrives as it was given."""

from __future__ import annotations

import apsw
from hypothesis import example, given
from hypothesis import strategies as st

from onbeat.store.rows import LARGEST, encode_rows

STORABLE = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    rows=st.lists(
        st.tuples(st.integers(-LARGEST - 1, LARGEST), STORABLE, st.binary(), st.none() | st.booleans(), STORABLE),
        max_size=5,
    )
)
@example(rows=[(LARGEST, 'a\0b"\\u0000\\', b"\0\xff", None, '{"a": "\\ud83d\\ude00", "b": [1.0, 1e400]}')])
@example(rows=[])
def test_numbers_text_and_blobs_arrive_as_they_were_given(
    rows: list[tuple[int, str, bytes, bool | None, str]],
) -> None:
    given_rows = [(number, text, blob.hex(), flag, json) for number, text, blob, flag, json in rows]
    found = apsw.Connection(":memory:").execute(
        "SELECT value ->> 0, value ->> 1, unhex(value ->> 2), value ->> 3, CAST(value ->> 4 AS BLOB)"
        " FROM jsonb_each(?)",
        (encode_rows(given_rows),),
    )
    assert found.fetchall() == [(number, text, blob, flag, json.encode()) for number, text, blob, flag, json in rows]
