"""The demo of `onbeat dev --demo`: a receiver on loopback that checks signatures, and two jobs that call it.

The receiver uses `onbeat.receiver` just as a user's handler would.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import structlog

from onbeat.receiver import SignatureInvalid, verify

log = structlog.get_logger(__name__)

REMEMBERED = 1_000
"""Verdicts kept: each is read once, a moment after it was written."""

VALID = "signature ok"
JOBS = (
    {"key": "demo-every-5s", "name": "demo every 5s", "schedules": [{"every": "5s"}]},
    {"key": "demo-cron", "name": "demo cron", "schedules": [{"cron": "*/10 * * * * *", "timezone": "Europe/Berlin"}]},
)


class Demo:
    """A running receiver, and what it found."""

    def __init__(self, secret: str) -> None:
        self._verdicts: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(secret, self._note))
        threading.Thread(target=self._server.serve_forever, name="demo-receiver", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def create_jobs(self, server: str) -> None:
        """Make or refresh the two jobs; in a thread, as the server answers in the caller's own event loop."""
        threading.Thread(target=self._put_jobs, args=(server,), name="demo-jobs", daemon=True).start()

    def verdict(self, run_id: str) -> str | None:
        """What the receiver said of that run's last request. None: it did not come here."""
        with self._lock:
            return self._verdicts.pop(run_id, None)

    def stop(self) -> None:
        """Close the receiver."""
        self._server.shutdown()
        self._server.server_close()

    def _put_jobs(self, server: str) -> None:
        from onbeat.client.api import Api
        from onbeat.domain.errors import OnbeatError

        try:
            with Api(server) as api:
                for job in JOBS:
                    api.put_job(str(job["key"]), {**job, "tags": ["demo"], "target": {"url": self.url}})
        except OnbeatError as error:
            log.error("demo_jobs_failed", error=error.detail, field=error.field)

    def _note(self, run_id: str, verdict: str) -> None:
        with self._lock:
            self._verdicts[run_id] = verdict
            while len(self._verdicts) > REMEMBERED:
                self._verdicts.popitem(last=False)


def _handler(secret: str, note: Callable[[str, str], None]) -> type[BaseHTTPRequestHandler]:
    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # so that connections are kept

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                verify(self.headers.items(), body, secret)
            except SignatureInvalid as error:
                verdict, status = f"signature refused: {error}", 401
            else:
                verdict, status = VALID, 204
            note(self.headers.get("webhook-id", ""), verdict)
            self.send_response(status)
            if status != 204:
                self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Silent: `dev` prints the fires."""

    return Receiver
