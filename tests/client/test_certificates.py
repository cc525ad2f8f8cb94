"""A client verifies whoever has a certificate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.delivery.authority import make_authority
from tests.delivery.receivers import Receiver, says

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
async def test_nobody_is_told_a_key_without_a_certificate_that_is_accepted(tmp_path: Path, scheme: str) -> None:
    unknown = make_authority(tmp_path).serve("localhost")
    async with Receiver(says(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), tls=unknown) as receiver:
        with (
            Api(f"{scheme}://localhost:{receiver.port}", key="secret") as api,
            pytest.raises(ServerUnreachable, match="CERT"),
        ):
            await asyncio.to_thread(api.find_jobs)
        assert receiver.seen == []
