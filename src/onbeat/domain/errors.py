"""The one exception tree. Codes are stable and shared by API, CLI and logs.

A class's docstring is its default message. Expected losers of a race (a lost lease, a taken key) are return
values of the store, not exceptions; the services turn them into these where a caller has to be told.
"""

from __future__ import annotations

from typing import ClassVar


class OnbeatError(Exception):
    """Something in onbeat failed."""

    code: ClassVar[str] = "internal"

    def __init__(self, detail: str = "", *, field: str | None = None, remedy: str | None = None) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip().splitlines()[0]
        self.field = field
        self.remedy = remedy
        super().__init__(self.detail)


class DefinitionError(OnbeatError):
    """The job's definition cannot be honoured as written."""

    # One class for every refusal of a definition; the instance names which, since callers only differ in what they say.
    def __init__(self, code: str, detail: str, *, field: str | None = None, remedy: str | None = None) -> None:
        super().__init__(detail, field=field, remedy=remedy)
        self.reason_code = code


class RequestError(OnbeatError):
    """The request cannot be honoured as written."""

    code = "field_invalid"


class CursorInvalid(OnbeatError):
    """The cursor was not made by this server, or was edited."""

    code = "cursor_invalid"


class IdInvalid(OnbeatError):
    """That is not an id of the expected kind."""

    code = "id_invalid"


class JobNotFound(OnbeatError):
    """There is no such job."""

    code = "job_not_found"


class RunNotFound(OnbeatError):
    """There is no such run."""

    code = "run_not_found"


class CalendarNotFound(OnbeatError):
    """There is no such calendar."""

    code = "calendar_not_found"


class CalendarInUse(OnbeatError):
    """Jobs use the calendar."""

    code = "calendar_in_use"


class BackfillNotFound(OnbeatError):
    """There is no such backfill."""

    code = "backfill_not_found"


class BlackoutNotFound(OnbeatError):
    """There is no such blackout."""

    code = "blackout_not_found"


class KeyTaken(OnbeatError):
    """Another job in this namespace already has that key."""

    code = "key_taken"


class VersionMismatch(OnbeatError):
    """The job was changed by somebody else since you read it."""

    code = "version_mismatch"


class StateConflict(OnbeatError):
    """The job or run is in a state that does not allow this."""

    code = "state_conflict"


class LeaseLost(OnbeatError):
    """The lease is no longer yours; nothing was changed."""

    code = "lease_lost"


class RunTerminal(OnbeatError):
    """The run has already ended; nothing was changed."""

    code = "run_terminal"


class NotAuthenticated(OnbeatError):
    """A valid API key is required."""

    code = "not_authenticated"


class NotAllowed(OnbeatError):
    """This API key does not carry the scope that the call needs."""

    code = "not_allowed"


class IdempotencyConflict(OnbeatError):
    """That Idempotency-Key was used with another request."""

    code = "idempotency_key_reused"


class IdempotencyInFlight(OnbeatError):
    """A request with that Idempotency-Key is still being worked on."""

    code = "idempotency_key_in_flight"


class StoreUnavailable(OnbeatError):
    """The database does not answer; nothing was changed that you were not told of."""

    code = "store_unavailable"


class SchemaTooNew(OnbeatError):
    """The database was written by a newer onbeat."""

    code = "schema_too_new"


class ExtensionMissing(OnbeatError):
    """The database lacks an extension that this needs."""

    code = "extension_missing"


class DataFileInUse(OnbeatError):
    """Another onbeat process holds this data file."""

    code = "data_file_in_use"


class ConfigError(OnbeatError):
    """A setting is unknown or out of bounds."""

    code = "config_invalid"
