"""Reads one response from bytes, trusting the receiver with nothing. No I/O, no clock.

Owns the rules of what counts. The status line decides alone, so it is read here and not by the parser: once a 2xx line
has come, the receiver has acted, and nothing that follows (a bad chunk, two lengths, NULs, an early end) may turn that
into a failure and a second delivery. `httptools` reads headers and body after it; what it refuses costs the connection,
never the outcome. The body is never decoded. Limits bound what one attempt holds to about 100 KiB.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import httptools

from onbeat.domain.outcome import Response

MAX_HEAD_BYTES: Final = 16_384  # over all interim responses and the final one
MAX_HEADER_LINES: Final = 100
MAX_INTERIM: Final = 10
MAX_BODY_READ: Final = 65_536
MAX_BODY_KEPT: Final = 16_384

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r?\n")
_INTERIM_HEAD = re.compile(
    rb"HTTP/1\.[01] [0-9]{3}(?: [^\r\n]*)?\r\n(?:[!#-'*+\-.0-9A-Z^_`a-z|~]+:[^\r\n\x00]*\r\n)*\r\n"
)
_BEGINNING: Final = b"HTTP/1."
_BODILESS_STATUSES: Final = (204, 304)
_LONGEST_HEAD_KEPT: Final = 2_048
_MOST_HEADS_KEPT: Final = 512
_MOST_MARKS: Final = 4_096

_Texts = tuple[tuple[str, str], ...]


class _Head(NamedTuple):
    """The head of an answer that named the length of its body, and after which the connection could be used again."""

    status: int
    headers: _Texts
    length: int


class _Heads:
    """Answers to webhooks are short, and a receiver begins all of the same second with the same bytes: what those mean
    is remembered. It is found out by a reader that reads such an answer byte for byte, twice: heads that are all
    different, with an id in each, push nothing out.
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, _Head] = {}
        self._marks: set[int] = set()  # hashes of heads that were seen

    def get(self, head: bytes) -> _Head | None:
        return self._kept.get(head)

    def was_seen(self, head: bytes) -> bool:
        """From now on it was."""
        mark = hash(head)
        if mark in self._marks:
            return True
        if len(self._marks) >= _MOST_MARKS:
            self._marks.clear()
        self._marks.add(mark)
        return False

    def keep(self, head: bytes, meaning: _Head) -> None:
        if len(self._kept) >= _MOST_HEADS_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[head] = meaning


_HEADS = _Heads()


class ResponseReader:
    """Feed it what arrives until it says it has enough."""

    # As attributes of the class: most answers are over with the first bytes, and one of these is made for each.
    status: int | None = None  # the final one, 200..599 or 101
    problem: str | None = None  # why this is no HTTP response
    began = False  # at least one byte came
    finished = False  # nothing more is needed
    reusable = False  # there is no doubt where the response ended
    truncated = False  # what is kept is not all that was sent
    _head: _Head | None = None  # of an answer that came in one piece and was not read byte for byte
    _lead = b""
    _interim = 0
    _head_left = MAX_HEAD_BYTES
    _read_left = MAX_BODY_READ
    _kept = 0
    _tail = b""  # the last bytes before those that are read now, where an end may lie across
    _is_odd = False  # an interim response was not as it has to be
    _headers_over = False
    _keep_alive = False
    _length: int | None = None  # what is left of a body whose length was named
    _complete = False
    _surplus = False
    _parser: httptools.HttpResponseParser | None = None

    def __init__(self, *, method: str) -> None:
        self._method = method
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []

    def feed(self, data: bytes) -> bool:
        """Take bytes; True: nothing more is needed."""
        if self.finished:
            return True
        if not self.began:
            self.began = True
            if self._method != "HEAD":
                return self._feed_first(data)
        return self._feed(data)

    def _feed_first(self, data: bytes) -> bool:
        """What comes first is mostly all there is, and mostly begins like the answer before."""
        end = data.find(b"\r\n\r\n") + 4
        if not 4 < end <= _LONGEST_HEAD_KEPT:
            return self._feed(data)
        head = data[:end]
        known = _HEADS.get(head)
        if known is not None and len(data) - end == known.length:
            self._head = known
            self.status = known.status
            self._body.append(data[end:])
            self.finished = self.reusable = True
        elif self._feed(data) and known is None and self._is_plain and _HEADS.was_seen(head):
            assert self.status is not None
            _HEADS.keep(head, _Head(self.status, self._texts(), len(data) - end))
        return self.finished

    @property
    def _is_plain(self) -> bool:
        """Would every answer that begins with this head, and then has as many bytes, be read like this one?"""
        return self.reusable and not self.truncated and not self._interim and self._length is not None

    def _feed(self, data: bytes) -> bool:
        if self._parser is None:
            data = self._read_status_lines(self._lead + data if self._lead else data)
        if self._parser is not None:
            self._read_message(data, self._parser)
        return self.finished

    def end(self) -> None:
        """No more bytes will come: the connection is gone or the time is over."""
        if self.finished:
            return
        if self.status is None:
            self.problem = "the answer ended before its status line"
        elif not self._ends_with_connection():
            self.truncated = True
        self._finish()

    def disown(self) -> None:
        """Whatever this is, it is no answer to our request."""
        self.status = None
        self.reusable = False
        self.problem = "the answer was sent before the request had arrived"

    def response(self) -> Response:
        """What is kept of the answer."""
        return Response(headers=self._texts(), body=b"".join(self._body), truncated=self.truncated)

    def find_header(self, name: str) -> str | None:
        """The first value of a header; `name` in lower case."""
        return next((value for given, value in self._texts() if given.lower() == name), None)

    def _texts(self) -> _Texts:
        if self._head is not None:
            return self._head.headers
        kept = self._headers[:MAX_HEADER_LINES]
        return tuple([(name.decode("latin-1"), value.decode("latin-1")) for name, value in kept])

    def _read_status_lines(self, data: bytes) -> bytes:
        """Pass over interim responses; make the parser at the final status line. Answer: the bytes from there on."""
        while True:
            if not data.startswith(_BEGINNING[: len(data)]):
                return self._refuse("the answer does not begin with an HTTP/1 status line")
            line_end = data.find(b"\n") + 1
            if not line_end:
                return self._await_more(data)
            line = _STATUS_LINE.match(data)
            if line is None:
                return self._refuse("the status line is not valid HTTP/1")
            status = int(line[1])
            if not 100 <= status <= 599:
                return self._refuse(f"the status {line[1].decode()} is outside 100 to 599")
            if status >= 200 or status == 101:
                self.status = status
                self._lead = b""
                self._parser = httptools.HttpResponseParser(self)
                return data
            head_end = data.find(b"\r\n\r\n", line_end - 2)
            if head_end < 0:
                return self._await_more(data)
            self._is_odd |= _INTERIM_HEAD.fullmatch(data, 0, head_end + 4) is None
            self._interim += 1
            self._head_left -= head_end + 4
            if self._interim > MAX_INTERIM or self._head_left <= 0:
                return self._refuse("there were more interim responses than anybody needs")
            data = data[head_end + 4 :]

    def _await_more(self, data: bytes) -> bytes:
        self._lead = data
        if len(data) > self._head_left:
            return self._refuse("the answer's head is too long")
        return b""

    def _refuse(self, problem: str) -> bytes:
        self.problem = problem
        self._finish()
        return b""

    def _read_message(self, data: bytes, parser: httptools.HttpResponseParser) -> None:
        try:
            if not self._headers_over:
                data = self._read_head(data, parser)
            if self._headers_over and not self.finished:
                self._read_body(data, parser)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self._complete:
                self._finish()
            else:
                self._cut()

    def _read_head(self, data: bytes, parser: httptools.HttpResponseParser) -> bytes:
        """Feed the parser up to the end of the head and not a byte further. Answer: what comes after it.

        The parser does not say where a message ends and passes over blank lines after it, so the ends are found here.
        """
        seen = self._tail + data if self._tail else data
        at = seen.find(b"\r\n\r\n")
        end = at + 4 - len(self._tail) if at >= 0 else len(data)
        is_end = at >= 0 and end <= self._head_left
        end = min(end, self._head_left)
        self._head_left -= end
        parser.feed_data(data[:end])
        self._tail = b"" if is_end else seen[-3:]
        if self._headers_over != is_end or self._head_left <= 0 or len(self._headers) > MAX_HEADER_LINES:
            self._cut()
        return data[end:]

    def _read_body(self, data: bytes, parser: httptools.HttpResponseParser) -> None:
        length = self._length
        if length is None:
            self._read_chunks(data, parser)
            return
        if length:
            piece = data[: min(length, self._read_left)]
            self._keep(piece)
            data = data[len(piece) :]
            self._length = length = length - len(piece)
            self._read_left -= len(piece)
        if not length:
            self.reusable = self._keep_alive and not data
            self._finish()
        elif self._read_left <= 0:
            self._cut()

    def _read_chunks(self, data: bytes, parser: httptools.HttpResponseParser) -> None:
        """Chunks, or a body that ends with the connection."""
        piece = data[: self._read_left]
        self._read_left -= len(piece)
        parser.feed_data(piece)
        self._tail = (self._tail + piece)[-5:]
        if self._complete:
            # Of what may follow the last chunk, the parser tells us everything but line breaks. A trailer or the last
            # chunk's own line ends in none, so what ends in one blank line ends there.
            is_end = self._tail.endswith(b"\r\n\r\n") and self._tail[-5:-4] not in (b"\r", b"\n")
            self.reusable = self._keep_alive and is_end and len(piece) == len(data) and not self._surplus
            self._finish()
        elif self._read_left <= 0:
            self._cut()

    def _keep(self, body: bytes) -> None:
        room = MAX_BODY_KEPT - self._kept
        if len(body) > room:
            self.truncated = True
            body = body[:room]
        if body:
            self._kept += len(body)
            self._body.append(body)

    def _cut(self) -> None:
        self.truncated = True
        self.reusable = False
        self._finish()

    def _finish(self) -> None:
        self.finished = True
        self._parser = None  # it refers to us: without this, every response would wait for the garbage collector
        self._lead = b""

    def _ends_with_connection(self) -> bool:
        framing = (b"content-length", b"transfer-encoding")
        return self._headers_over and not any(name.lower() in framing for name, _ in self._headers)

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headers_over and len(self._headers) <= MAX_HEADER_LINES:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._headers_over:
            self._surplus = True  # of another message
            return
        self._headers_over = True
        if self._parser is not None:
            # Asked now: the parser forgets it with the end of the message.
            self._keep_alive = self._parser.should_keep_alive() and not self._is_odd
        self._read_framing()

    def on_body(self, body: bytes) -> None:
        if self._complete:
            self._surplus = True
        else:
            self._keep(body)

    def on_message_complete(self) -> None:
        self._complete = True

    def _read_framing(self) -> None:
        """How long the body is, where the head alone tells it. The parser has refused heads that tell two lengths."""
        length, has_coding = None, False
        for name, value in self._headers:
            # By its length first: this is done for every header of every answer.
            if len(name) == 14 and name.lower() == b"content-length":
                length = int(value)
            elif len(name) == 17 and name.lower() == b"transfer-encoding":
                self._keep_alive &= not has_coding and value.lower() == b"chunked"
                has_coding = True
            elif len(name) == 10 and name.lower() == b"connection" and b"close" in value.lower():
                self._keep_alive = False  # of two headers that contradict each other the parser believes the first
        if self._method == "HEAD" or self.status in _BODILESS_STATUSES:
            self._length = 0
        elif not has_coding:
            self._length = length
