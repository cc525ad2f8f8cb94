"""Reports on work that was accepted: for handlers of jobs with `completion: callback`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 10.0


class WorkLost(Exception):
    """The run is no longer this handler's: it took too long, was cancelled, or has ended. Stop the work."""


@dataclass(frozen=True, slots=True)
class Callback:
    """Where one attempt reports. Keep it with the work; it can be written down as two texts.

    An OSError says that the report did not arrive: report again. The same completion twice does no harm.
    """

    url: str
    token: str

    @classmethod
    def of(cls, body: bytes) -> Callback:
        """From the body of a call that was verified. Raises ValueError where the job asks for no callback."""
        try:
            named = json.loads(body)["callback"]
            return cls(url=str(named["url"]), token=str(named["token"]))
        except (ValueError, KeyError, TypeError):
            raise ValueError("the body names no callback; a job with a body of its own has it in the headers") from None

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> Callback:
        """For jobs with a body of their own. Headers are not signed: accept only URLs that you expect."""
        given = {name.lower(): value for name, value in headers.items()}
        try:
            return cls(url=given["onbeat-callback-url"], token=given["onbeat-callback-token"])
        except KeyError:
            raise ValueError("the call asks for no callback") from None

    def succeed(self, result: Any = None) -> None:
        """The work is done. Raises WorkLost."""
        self._post("complete", {"outcome": "succeeded", "result": result})

    def fail(self, error: str) -> None:
        """The work failed; the job's rules say whether it is tried again. Raises WorkLost."""
        self._post("complete", {"outcome": "failed", "error": error})

    def heartbeat(self) -> None:
        """The work goes on. Raises WorkLost, also where the run was cancelled."""
        self._report("heartbeat", {})

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """So far it is; counts as a heartbeat. Raises WorkLost, also where the run was cancelled."""
        self._report("progress", {"percent": percent, "message": message})

    def _report(self, what: str, fields: dict[str, Any]) -> None:
        if self._post(what, fields).get("status") != "live":
            raise WorkLost("the run was cancelled")

    def _post(self, what: str, fields: dict[str, Any]) -> dict[str, Any]:
        if not self.url.startswith(("https://", "http://")):
            raise ValueError("a callback URL begins with https:// or http://")
        request = urllib.request.Request(  # noqa: S310  the scheme was looked at
            f"{self.url}/{what}",
            data=json.dumps({"token": self.token} | fields).encode(),
            headers={"content-type": "application/json"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            if error.code == 409:
                raise WorkLost("the run has ended, or another attempt has it") from None
            raise
