"""Opens a tunnel through the operator's egress proxy: CONNECT out, its answer in; then the socket is the target's.

Owns the words with the proxy. The proxy's credentials go into these bytes and into no others, so the target never sees
them. Anything but a plain 2xx answer is a failure of the proxy, told by fixed words and its status: what it says beyond
that may name hosts of the operator's network (reliability S11).
Source: RFC 9110 §9.3.6.
"""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Final

from onbeat.delivery.failure import DialFailed
from onbeat.domain.egress_proxy import EgressProxy
from onbeat.domain.outcome import OutcomeKind

MAX_ANSWER_BYTES: Final = 16_384
CLOSED: Final = "the egress proxy closed the connection instead of opening a tunnel"
_PIECE_BYTES: Final = 4_096
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")


class TunnelRefused(DialFailed):
    """The proxy is there and opened no tunnel."""

    def __init__(self, reason: str, *, status: int | None = None) -> None:
        super().__init__(OutcomeKind.PROXY, reason)
        self.status = status

    @property
    def may_be_the_address(self) -> bool:
        """The proxy tried and did not reach the target: another address of it may do."""
        return self.status in (502, 503, 504)


async def open_tunnel(connected: socket.socket, *, proxy: EgressProxy, target: str, limit_s: float | None) -> None:
    """Have the proxy at the other end of `connected` lead to `target` (host:port) from here on. Raises TunnelRefused.

    Whatever happens, the socket stays the caller's.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limit_s):
            await loop.sock_sendall(connected, _ask(target, proxy))
            answer = b""
            while b"\r\n\r\n" not in answer:
                piece = await loop.sock_recv(connected, _PIECE_BYTES)
                if not piece:
                    raise TunnelRefused(CLOSED)
                answer += piece
                if len(answer) > MAX_ANSWER_BYTES:
                    raise TunnelRefused("the egress proxy's answer has no end")
    except TimeoutError:
        raise TunnelRefused("the egress proxy did not open a tunnel in time") from None
    except OSError:
        raise TunnelRefused(CLOSED) from None
    judge_answer(answer)


def judge_answer(answer: bytes) -> None:
    """Does this mean that the tunnel is open, with the target's first byte to come? Raises TunnelRefused."""
    line = _STATUS_LINE.match(answer)
    if line is None:
        raise TunnelRefused("the egress proxy's answer is not HTTP")
    status = int(line[1])
    if status in (401, 407):  # 401 is Tinyproxy's
        raise TunnelRefused(f"the egress proxy does not accept our user and password ({status})", status=status)
    if not 200 <= status < 300:
        raise TunnelRefused(f"the egress proxy answered {status} and opened no tunnel", status=status)
    if answer.index(b"\r\n\r\n") + 4 != len(answer):
        # Neither TLS nor HTTP lets the target speak first: these bytes are nobody's, and would be read as its answer.
        raise TunnelRefused("the egress proxy sent more than its answer")


def _ask(target: str, proxy: EgressProxy) -> bytes:
    credentials = "" if proxy.authorization is None else f"proxy-authorization: {proxy.authorization}\r\n"
    return f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{credentials}\r\n".encode("ascii")
