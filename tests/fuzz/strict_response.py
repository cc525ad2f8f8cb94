"""A second opinion on where an HTTP/1 response ends: RFC 9110 and 9112 to the letter, leaving nothing to leniency.

Written for the tests, slow and strict on purpose, and without httptools: what the sender's reader calls the certain end
of a response must be the end here as well, or a byte more or less would be read as the answer to the next request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})(?: [\t \x21-\x7e\x80-\xff]*)?\r\n")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t \x21-\x7e\x80-\xff]*?)[ \t]*\r\n")
_CHUNK = re.compile(rb"([0-9A-Fa-f]+)(?:[ \t]*;[\t \x21-\x7e\x80-\xff]+)?\r\n")


@dataclass(frozen=True, slots=True)
class _Head:
    version: int
    status: int
    fields: list[tuple[bytes, bytes]]
    end: int

    def values(self, name: bytes) -> list[bytes]:
        return [value for given, value in self.fields if given == name]


def response_end(data: bytes, *, method: str) -> int | None:
    """Where the response at the start of `data` ends, if the connection may carry another one after it. Else None."""
    head = _read_head(data, 0)
    while head is not None and 100 <= head.status < 200 and head.status != 101:
        head = _read_head(data, head.end)
    if head is None or not 200 <= head.status <= 599 or not _keeps_alive(head):
        return None
    lengths, codings = head.values(b"content-length"), head.values(b"transfer-encoding")
    if len(lengths) + bool(codings) > 1 or not all(re.fullmatch(rb"[0-9]{1,18}", length) for length in lengths):
        return None
    if codings and [coding.lower() for coding in codings] != [b"chunked"]:
        return None
    if head.status in (204, 304) or (method == "HEAD" and (lengths or codings)):
        return head.end
    if codings:
        return _chunks_end(data, head.end) if head.version == 1 else None
    if not lengths:
        return None
    end = head.end + int(lengths[0])
    return end if end <= len(data) else None


def _read_head(data: bytes, start: int) -> _Head | None:
    line = _STATUS_LINE.match(data, start)
    if line is None:
        return None
    fields, at = _read_fields(data, line.end())
    return None if at is None else _Head(int(line[1]), int(line[2]), fields, at)


def _read_fields(data: bytes, at: int) -> tuple[list[tuple[bytes, bytes]], int | None]:
    fields: list[tuple[bytes, bytes]] = []
    while not data.startswith(b"\r\n", at):
        field = _FIELD.match(data, at)
        if field is None:
            return fields, None
        fields.append((field[1].lower(), field[2]))
        at = field.end()
    return fields, at + 2


def _keeps_alive(head: _Head) -> bool:
    options = [option.strip().lower() for value in head.values(b"connection") for option in value.split(b",")]
    if b"close" in options:
        return False
    return head.version == 1 or b"keep-alive" in options


def _chunks_end(data: bytes, at: int) -> int | None:
    while True:
        line = _CHUNK.match(data, at)
        if line is None:
            return None
        size = int(line[1], 16)
        at = line.end() + size
        if not size:
            return _read_fields(data, at)[1]
        if not data.startswith(b"\r\n", at):
            return None
        at += 2
