"""A client verifies whoever has a certificate."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.delivery.authority import make_authority

from onbeat.client.api import Api, ServerUnreachable
from onbeat.client.certificates import has_certificates


@pytest.mark.parametrize(
    ("server", "has"),
    [
        ("http://127.0.0.1:8080", False),
        ("HTTP://onbeat.example", False),
        ("https://onbeat.example", True),
        ("HTTPS://onbeat.example", True),
        ("onbeat.example", True),
        ("", True),
    ],
)
def test_only_over_http_there_are_none(server: str, has: bool) -> None:
    assert has_certificates(server) is has


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_nobody_is_told_a_key_without_a_certificate_that_is_accepted(tmp_path: Path, scheme: str) -> None:
    with (
        unknown_server(tmp_path) as (port, heard),
        Api(f"{scheme}://localhost:{port}", key="secret") as api,
        pytest.raises(ServerUnreachable, match="CERT"),
    ):
        api.find_jobs()
    assert heard == []


@contextlib.contextmanager
def unknown_server(folder: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Its certificate is signed by nobody whom anybody knows. Yields its port, and what it was told."""
    context = make_authority(folder).serve("localhost")
    heard: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _address = listening.accept()
                with (
                    contextlib.suppress(OSError),
                    connected,
                    context.wrap_socket(connected, server_side=True) as secured,
                ):
                    heard.append(secured.recv(1_000))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], heard
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()
