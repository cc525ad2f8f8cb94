"""What inputs are put together from,
beside single bytes: without these a fuzzer would take days to say `HTTP/1.1`."""

from __future__ import annotations

from typing import Final

RESPONSE: Final = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 N\r\n", b"HTTP/1.1 304 N\r\n", b"HTTP/1.1 503 X\r\n", b"HTTP/1.0 404\r\n",
    b"HTTP/1.1 100 C\r\n", b"HTTP/1.1 103 H\r\n\r\n", b"HTTP/1.1 101 S\r\n", b"HTTP/1.1 200 OK\n", b"HTTP/1.1 ",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    b"HTTP/1.1 299 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 408 T\r\n\r\n",
    b"\r\n", b"\r\n\r\n", b"\n", b"\n\n", b"\r", b"\x00", b": ", b" ", b"\t", b";", b",",
    b"content-length: 5\r\n", b"content-length: 0\r\n", b"Content-Length : 5\r\n", b"content-length: +5\r\n",
    b"content-length: 5, 5\r\n", b"content-length: 18446744073709551621\r\n", b"content-length:\r\n 5\r\n",
    b"transfer-encoding: chunked\r\n", b"transfer-encoding: identity\r\n", b"transfer-encoding: gzip, chunked\r\n",
    b"transfer-encoding: chunked, identity\r\n", b"Transfer-Encoding:\tchunked\r\n",
    b"transfer-encoding: xchunked\r\n",
    b"connection: close\r\n", b"connection: keep-alive\r\n", b"connection: Keep-Alive, close\r\n",
    b"connection: upgrade\r\nupgrade: h2c\r\n", b"keep-alive: timeout=0\r\n", b"trailer: x\r\n", b"x: y\r\n",
    b"location: /\r\n", b"retry-after: 5\r\n", b" folded\r\n", b"\tfolded\r\n", b"no colon\r\n", b": empty\r\n",
    b"5\r\nhello\r\n", b"5;ext=1\r\nhello\r\n", b"5;ext=\"\r\n\"\r\nhello\r\n", b"5 \r\nhello\r\n",
    b"0x5\r\nhello\r\n",
    b"0\r\n\r\n", b"0\r\nx: trailer\r\n\r\n", b"00000000\r\n\r\n", b"0\n\n", b"0;\r\n\r\n", b"fffffffffffffffff\r\n",
    b"ffffffffffffffff\r\n", b"-1\r\n", b"zz\r\n", b"\r\n0\r\n\r\n", b"hello", b"ok",
    b"x" * 20_000, b"a: b\r\n" * 150, b"x-long: " + b"y" * 9_000 + b"\r\n",
)  # fmt: skip

URL: Final = (
    "http://", "https://", "HTTP:", "//", "/", "?", "#", "@", ":", "[", "]", "\\", "%", "%2e", "%00", ".", "..", "-",
    "_", "example.com", "a.test", "localhost", "xn--", "xn--bcher-kva", "bücher", "127.0.0.1", "127.1", "0x7f.1",
    "2130706433",
    "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "\u2460\u2461\u2466", "\u3002", "\uff0e",
    "\uff45", "\u212a",
    "ß", "\u200d", "\u00ad",
    ":80", ":443", ":0", ":65536", ":00080", ":\u0663", "\t", "\r\n", " ", "\ud800", "1", "0x", "é",
)  # fmt: skip

RETRY_AFTER: Final = (
    "Fri, ", "Friday, ", "15 Jan 2027 ", "15-Jan-27 ", "Jan 15 ", "08:01:00", " 2027", " GMT", " -0000", " +9999",
    " -2460",
    "Wed, 21 Oct 2015 07:28:00 GMT", "99999999999", "0", "1", "-", "+", ".", ":", ",", " ", "e9", "\u0663", "\x00",
    "Feb 30 ",
    "31 Feb 9999 ", "1 Jan 0001 ", "24:60:60", "(comment)", "EST", "Z", "am",
)  # fmt: skip

SIGNATURE: Final = (
    b"\n", b"run_1\n", b"1800000000\n", b"01800000000\n", b"1_800_000_000\n", b"\xb2\n", b"1800000301\n", b"-1\n",
    b"v1,", b"v1a,", b"v2,", b" ", b",", b"=", b"g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", b".", b"\x00",
    b"\xff",
)  # fmt: skip

TUNNEL: Final = (
    b"HTTP/1.1 200 Connection established\r\n", b"HTTP/1.0 200\r\n", b"HTTP/1.1 407 P\r\n", b"HTTP/1.1 502 B\r\n",
    b"HTTP/1.1 100 C\r\n\r\n", b"HTTP/1.1 ", b"HTTP/2 200\r\n", b"content-length: 5\r\n", b"x: y\r\n", b"\r\n",
    b"\r\n\r\n",
    b"\n", b"\x00", b"user:password@", b"user@", b"@", b":", b"proxy.example", b":3128", b"/", b"%40", b"%0a",
    b"[::1]",
    b"127.1", b"#", b"?", b"\\", b" ", b"\xe9",
)  # fmt: skip
