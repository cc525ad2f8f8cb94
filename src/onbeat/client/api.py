"""The REST API from Python: one method per call, JSON in and out. Synchronous; the command line stands on it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import quote

import httpx

from onbeat.client.certificates import has_certificates
from onbeat.domain.errors import IdInvalid, OnbeatError, RequestError
from onbeat.domain.ids import format_job_id, format_run_id, parse_job_id, parse_run_id

Json = dict[str, Any]

# What stands in a path is checked, so that no text from a command line becomes another path.
_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")

TIMEOUT_S = 30.0
"""Longest wait for an answer; a batch of 1,000 jobs takes well under a second."""


class ServerUnreachable(OnbeatError):
    """The server does not answer."""

    code = "server_unreachable"


class ServerRefused(OnbeatError):
    """The server refused the request."""

    # The server's own problem, told again: its code, not one of ours.
    code: ClassVar[str] = "refused"

    def __init__(self, problem: Mapping[str, Any], *, status: int) -> None:
        detail = problem.get("detail") or problem.get("title") or f"the server answered {status}"
        super().__init__(str(detail), field=problem.get("field"), remedy=problem.get("remedy"))
        self.reason_code = str(problem.get("code") or "refused")
        self.status = status


class Api:
    """One server. Raises ServerUnreachable, ServerRefused, and before anything is sent IdInvalid and RequestError."""

    def __init__(self, server: str, *, key: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # No proxies and no .netrc from the environment: a key goes to the server that was named and nowhere else.
        self._http = httpx.Client(
            base_url=server, headers=headers, timeout=timeout_s, trust_env=False, verify=has_certificates(server)
        )
        self.server = server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    # ---------------------------------------------------------------- jobs

    def create_job(self, job: Json) -> Json:
        """The job as saved."""
        return self._call("POST", "/v1/jobs", body=job)

    def put_job(self, key: str, job: Json) -> Json:
        """Create the job with that key, or change it to look like this."""
        return self._call("PUT", _job_path(key), body=job)

    def create_jobs(self, jobs: Sequence[Json]) -> list[Json]:
        """Many in one call; one answer per job, in order: `job` where it was saved, `error` where it was refused."""
        answer = self._call("POST", "/v1/jobs:batch", body={"jobs": list(jobs)})
        return list(answer["items"])

    def find_jobs(self, **where: str | int | None) -> Json:
        """One page."""
        return self._call("GET", "/v1/jobs", query=where)

    def get_job(self, job: str) -> Json:
        """By id, or by key."""
        return self._call("GET", _job_path(job))

    def update_job(self, job: str, changes: Json, *, if_version: int | None = None) -> Json:
        """The job as saved. With `if_version`, only if nobody changed it since."""
        headers = {} if if_version is None else {"if-match": f'"{if_version}"'}
        return self._call("PATCH", self._by_id(job), body=changes, headers=headers)

    def delete_job(self, job: str, *, running: str = "finish") -> None:
        """Its history stays. `running`: what happens to attempts that run, finish or cancel."""
        self._call("DELETE", self._by_id(job), query={"running": running})

    def pause_job(self, job: str, body: Json) -> Json:
        """Tells `last_possible_side_effect_at`."""
        return self._call("POST", f"{self._by_id(job)}/pause", body=body)

    def resume_job(self, job: str, body: Json) -> Json:
        """Goes on at the next future instant, with `{"replay": "failed"}` after what failed before."""
        return self._call("POST", f"{self._by_id(job)}/resume", body=body)

    def pause_many(self, body: Json) -> Json:
        """Everything, or every job with a tag. Tells `last_possible_side_effect_at`."""
        return self._call("POST", "/v1/pause", body=body)

    def resume_many(self, body: Json) -> Json:
        """End such a pause."""
        return self._call("POST", "/v1/resume", body=body)

    def find_pauses(self) -> Json:
        """Pauses of many jobs that hold."""
        return self._call("GET", "/v1/pauses")

    def trigger_job(self, job: str, body: Json) -> Json:
        """The run that was recorded."""
        return self._call("POST", f"{self._by_id(job)}/trigger", body=body)

    def bulk_jobs(self, body: Json) -> Json:
        """One action on every job that a filter finds: up to `limit` of them, and `next_cursor`."""
        return self._call("POST", "/v1/jobs:bulk", body=body)

    def backfill_job(self, job: str, body: Json) -> Json:
        """The backfill that has begun; with `dry_run`, what it would do."""
        return self._call("POST", f"{self._by_id(job)}/backfill", body=body)

    def get_backfill(self, job: str, number: int) -> Json:
        """How far it is."""
        return self._call("GET", f"{self._by_id(job)}/backfills/{number}")

    def next_fires(self, job: str, *, count: int, explain: bool = False) -> Json:
        """Planned instants to come; with `explain`, what calendars removed or moved, too."""
        query = {"count": count, "explain": "true" if explain else None}
        return self._call("GET", f"{self._by_id(job)}/next", query=query)

    # ---------------------------------------------------------------- runs

    def find_runs(self, **where: Any) -> Json:
        """One page, newest planned instant first."""
        return self._call("GET", "/v1/runs", query=where)

    def get_run(self, run_id: str) -> Json:
        """One run."""
        return self._call("GET", _run_path(run_id))

    def attempts(self, run_id: str) -> Json:
        """Every finished attempt of a run."""
        return self._call("GET", f"{_run_path(run_id)}/attempts")

    def cancel_run(self, run_id: str) -> Json:
        """End it if it waits; ask it to stop if it runs."""
        return self._call("POST", f"{_run_path(run_id)}/cancel", body={})

    def retry_run(self, run_id: str) -> Json:
        """Bring an ended run back under its own id."""
        return self._call("POST", f"{_run_path(run_id)}/retry", body={})

    def bulk_runs(self, body: Json) -> Json:
        """The same on runs."""
        return self._call("POST", "/v1/runs:bulk", body=body)

    # ---------------------------------------------------------------- calendars

    def put_calendar(self, name: str, rules: Json) -> Json:
        """Create the calendar, or give it these rules."""
        return self._call("PUT", _calendar_path(name), body=rules)

    def find_calendars(self) -> Json:
        """Every calendar, in a few words."""
        return self._call("GET", "/v1/calendars")

    def get_calendar(self, name: str) -> Json:
        """One calendar, with its rules."""
        return self._call("GET", _calendar_path(name))

    def import_calendar(self, name: str, body: Json) -> Json:
        """Days of an iCalendar text in place of the calendar's dates."""
        return self._call("POST", f"{_calendar_path(name)}/import", body=body)

    def delete_calendar(self, name: str) -> None:
        """Refused while jobs use it."""
        self._call("DELETE", _calendar_path(name))

    # ---------------------------------------------------------------- blackouts

    def put_blackout(self, name: str, rules: Json) -> Json:
        """Create the blackout, or give it these rules."""
        return self._call("PUT", _blackout_path(name), body=rules)

    def find_blackouts(self) -> Json:
        """Every blackout, past ones too."""
        return self._call("GET", "/v1/blackouts")

    def get_blackout(self, name: str) -> Json:
        """One blackout."""
        return self._call("GET", _blackout_path(name))

    def delete_blackout(self, name: str) -> None:
        """What it has held back stays skipped."""
        self._call("DELETE", _blackout_path(name))

    # ---------------------------------------------------------------- keys, secrets, health

    def create_key(self, body: Json) -> Json:
        """The key, with its text: shown only now."""
        return self._call("POST", "/v1/keys", body=body)

    def find_keys(self) -> Json:
        """Every key, revoked ones too."""
        return self._call("GET", "/v1/keys")

    def revoke_key(self, key_id: str) -> None:
        """Refused within 5 s."""
        self._call("DELETE", f"/v1/keys/{quote(key_id, safe='')}")

    def rotate_secret(self, name: str) -> Json:
        """The new secret, with its text: shown only now."""
        return self._call("POST", f"/v1/secrets/{quote(name, safe='')}:rotate", body={})

    def find_secrets(self) -> Json:
        """Names and versions, no values."""
        return self._call("GET", "/v1/secrets")

    def find_nodes(self) -> Json:
        """Every process that works on the server's database."""
        return self._call("GET", "/v1/nodes")

    def readiness(self) -> Json:
        """Whether the server does its work, and what should be looked after; needs no key."""
        answer: Json = self._request("GET", "/readyz").json()
        return answer

    def server_date(self) -> str | None:
        """The server's clock, as the Date header of its health page says."""
        date: str | None = self._request("GET", "/healthz").headers.get("date")
        return date

    def _by_id(self, job: str) -> str:
        """Changes are made by id only; a key is looked up first."""
        return _job_path(job if job.startswith("job_") else str(self.get_job(job)["id"]))

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        known = {name: value for name, value in (query or {}).items() if value is not None}
        response = self._request(method, path, json=body, params=known, headers=dict(headers or {}))
        if response.is_success:
            return dict(response.json()) if response.content else {}
        raise ServerRefused(_problem(response), status=response.status_code)

    def _request(self, method: str, path: str, **parts: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **parts)
        except UnicodeEncodeError:  # of an argument that was not written in UTF-8
            raise RequestError(
                "the request has text that is not UTF-8", remedy="set your terminal and its locale to UTF-8"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServerUnreachable(
                f"no answer from {self.server}: {error or type(error).__name__}",
                remedy="start it with `onbeat dev` or `onbeat serve`, or name another with --server or ONBEAT_URL",
            ) from None


def _job_path(job: str) -> str:
    if job.startswith("job_"):
        return f"/v1/jobs/{format_job_id(parse_job_id(job))}"
    if not _KEY.fullmatch(job):
        raise IdInvalid(f"{job[:60]!r} is neither a job's id nor a key", remedy="see `onbeat jobs list`")
    return f"/v1/jobs/by-key/{job}"


def _calendar_path(name: str) -> str:
    return f"/v1/calendars/{_checked_name(name)}"


def _blackout_path(name: str) -> str:
    return f"/v1/blackouts/{_checked_name(name)}"


def _checked_name(name: str) -> str:
    if not _KEY.fullmatch(name):
        raise IdInvalid(f"{name[:60]!r} is no name", remedy="names are slugs, such as new-year")
    return name


def _run_path(run_id: str) -> str:
    return f"/v1/runs/{format_run_id(parse_run_id(run_id))}"


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if isinstance(problem, dict):
        return problem
    return {"detail": f"{response.url} answered {response.status_code} and is perhaps no onbeat server"}
