"""Rows that one statement takes together: every value arrives as it was given."""

from __future__ import annotations

import apsw
from hypothesis import example, given
from hypothesis import strategies as st

from onbeat.store.rows import LARGEST, decode_rows, encode_rows

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


@given(rows=st.lists(st.tuples(st.integers(-LARGEST - 1, LARGEST), STORABLE, st.none() | STORABLE), max_size=5))
@example(rows=[(LARGEST, 'a\0b"\\u0000\\\x1f\u2028', None)])
def test_rows_that_are_answered_as_one_are_those_of_the_table(rows: list[tuple[int, str, str | None]]) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE given (number INTEGER, text TEXT, maybe TEXT) STRICT")
    connection.executemany("INSERT INTO given VALUES (?, ?, ?)", rows)
    answer = connection.execute(
        "SELECT CAST(json_group_array(json_array(g.number, g.text, g.maybe)) AS BLOB)"
        " FROM (SELECT * FROM given ORDER BY rowid DESC LIMIT 10) AS g"
    ).get
    assert decode_rows(answer) == rows[::-1]
