"""Whose certificates a client reads."""

from __future__ import annotations

from urllib.parse import urlsplit


def has_certificates(server: str) -> bool:
    """Is there anything to verify at this URL? Reading those of all public authorities takes some 50 ms, longer than
    most commands of the command line, which mostly go to a server on the same host over http.
    """
    return urlsplit(server).scheme != "http"
