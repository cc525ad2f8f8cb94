"""The jobs that a list of runs belongs to: their labels and zones, each asked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onbeat.cli.moments import zone_of

if TYPE_CHECKING:
    from onbeat.client.api import Api


@dataclass(frozen=True, slots=True)
class KnownJob:
    """What a list of runs shows of a job."""

    label: str  # its key, else its name
    timezone: str


class KnownJobs:
    """Jobs by id."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, KnownJob] = {}

    def remember(self, job: Mapping[str, Any]) -> str:
        """Note a job that was read anyway. Answer: its id."""
        self._known[job["id"]] = KnownJob(label=job.get("key") or job["name"], timezone=zone_of(job))
        return str(job["id"])

    def of(self, job_id: str) -> KnownJob:
        """The job; its id and UTC where it is gone."""
        from onbeat.client.api import ServerRefused

        if job_id not in self._known:
            try:
                self.remember(self._api.get_job(job_id))
            except ServerRefused:
                self._known[job_id] = KnownJob(label=job_id, timezone="UTC")
        return self._known[job_id]
