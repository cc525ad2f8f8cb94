"""Blackouts as they are written and answered. What can be written reads back the same."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from onbeat.api.schemas.base import Body, Tag, View, moment
from onbeat.domain.blackout import BlackoutRules, decode_blackout
from onbeat.domain.duration import parse_duration
from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import parse_instant
from onbeat.store.values import StoredBlackout


class BlackoutBody(Body):
    """A window (`from`, `until`), or windows that recur (`cron`, `timezone`, `duration`)."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["from", "until"]}, {"required": ["cron", "duration"]}]}
    )

    tag: Tag | None = Field(None, description="Whose jobs; without it, all jobs of the namespace")
    from_: str | None = Field(None, alias="from", max_length=64, examples=["2026-12-24T18:00:00Z"])
    until: str | None = Field(None, max_length=64, examples=["2026-12-27T06:00:00Z"], description="Exclusive")
    cron: str | None = Field(
        None, max_length=1_000, examples=["0 22 * * 5"], description="When a window begins: at most once an hour"
    )
    timezone: str | None = Field(None, max_length=64, description="Zone of `cron`; UTC without it")
    duration: int | str | None = Field(
        None, examples=["8h", 28_800], description="Elapsed time, 1 minute to 31 days: seconds, or a length"
    )


class BlackoutView(View):
    """A blackout as it stands. Where what is stored cannot be read, its rules are empty."""

    name: str
    version: int
    created_at: str
    updated_at: str
    tag: str | None = None
    from_: str | None = Field(None, alias="from")
    until: str | None = None
    cron: str | None = None
    timezone: str | None = None
    duration: int | None = Field(None, description="Seconds")


class BlackoutList(View):
    """Every blackout, by name, past ones too."""

    items: list[BlackoutView]


def read_blackout(body: BlackoutBody) -> BlackoutRules:
    """What the service takes. Raises RequestError, DefinitionError naming the field."""
    if body.cron is None and body.timezone is not None:
        raise DefinitionError(
            "blackout_invalid", "only `cron` has a time zone", field="timezone", remedy="from and until have an offset"
        )
    return BlackoutRules(
        tag=body.tag,
        from_at=None if body.from_ is None else parse_instant(body.from_, field="from"),
        until_at=None if body.until is None else parse_instant(body.until, field="until"),
        cron=body.cron,
        timezone="UTC" if body.timezone is None else body.timezone,
        duration_s=None if body.duration is None else parse_duration(body.duration, field="duration"),
    )


def view_blackout(stored: StoredBlackout) -> dict[str, Any]:
    """A BlackoutView, ready to be written as JSON."""
    return {
        "name": stored.name,
        "version": stored.version,
        "created_at": moment(stored.created_at),
        "updated_at": moment(stored.updated_at),
        **_view_rules(stored),
    }


def _view_rules(stored: StoredBlackout) -> dict[str, Any]:
    try:
        rules = decode_blackout(stored.rules)
    except DefinitionError:
        return {}
    if rules.cron is None:
        return {"tag": rules.tag, "from": moment(rules.from_at), "until": moment(rules.until_at)}
    return {"tag": rules.tag, "cron": rules.cron, "timezone": rules.timezone, "duration": rules.duration_s}
