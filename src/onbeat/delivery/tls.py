"""TLS over a connected socket: named after and verified for the URL's host, whatever address was dialled."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from onbeat.delivery.failure import DialFailed
from onbeat.domain.outcome import OutcomeKind

_SHUTDOWN_S: Final = 1.0  # how long a peer may take to say goodbye before its socket is closed anyway

Opened = TypeVar("Opened", bound=asyncio.Protocol)


def create_tls_context(*, ca_file: Path | None = None) -> ssl.SSLContext:
    """TLS 1.2 or newer, certificate and host name verified; `ca_file` adds a private authority to the system's."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


async def speak_tls(
    connected: socket.socket,
    *,
    host: str,
    context: ssl.SSLContext,
    protocol: Callable[[], Opened],
    limit_s: float | None,
) -> Opened:
    """The protocol, connected over TLS. Raises DialFailed. The socket is the loop's from here on, whatever happens."""
    try:
        async with asyncio.timeout(limit_s):
            _, opened = await asyncio.get_running_loop().create_connection(
                protocol, sock=connected, ssl=context, server_hostname=host, ssl_shutdown_timeout=_SHUTDOWN_S
            )
            return opened
    except TimeoutError:
        raise DialFailed(OutcomeKind.TIMEOUT_BEFORE_SEND, "the TLS handshake did not end in time") from None
    except ssl.SSLCertVerificationError as error:
        raise DialFailed(OutcomeKind.TLS, f"certificate not accepted: {error.verify_message}") from None
    except ssl.SSLError as error:
        raise DialFailed(OutcomeKind.TLS, f"TLS failed: {error.reason or 'no reason given'}") from None
    except (OSError, ssl.CertificateError):
        raise DialFailed(OutcomeKind.TLS, "the host closed the connection during the TLS handshake") from None
