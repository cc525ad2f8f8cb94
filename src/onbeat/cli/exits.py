"""Exit codes of every command, and how an expected failure is told. Documented in docs/cli.md."""

from __future__ import annotations

import sys
from enum import IntEnum

from onbeat.cli.terminal import clean
from onbeat.domain.errors import ConfigError, DefinitionError, IdInvalid, NotAuthenticated, OnbeatError, RequestError


class Exit(IntEnum):
    """What a script can tell apart."""

    OK = 0
    REFUSED = 1  # refused by the server, not found, or a check that failed
    USAGE = 2  # wrong usage or bad input, found before anything was sent
    UNREACHABLE = 3  # no answer from the server, or from the database behind it
    NOT_AUTHENTICATED = 4  # a valid API key is required
    INTERRUPTED = 130  # stopped from the keyboard


_LOCAL_INPUT = (DefinitionError, RequestError, IdInvalid, ConfigError)


def exit_code(error: OnbeatError) -> Exit:
    """The exit code for an expected failure."""
    code = code_of(error)
    if code in ("server_unreachable", "store_unavailable"):
        return Exit.UNREACHABLE
    if code == NotAuthenticated.code:
        return Exit.NOT_AUTHENTICATED
    # A definition that the server refused comes back as a ServerRefused, so these were found here.
    return Exit.USAGE if isinstance(error, _LOCAL_INPUT) else Exit.REFUSED


def code_of(error: OnbeatError) -> str:
    """The stable code: of the class, or of the instance where one class has several."""
    return str(getattr(error, "reason_code", error.code))


def report(error: OnbeatError) -> None:
    """Say what failed, where, what to do, and the code to search for. On standard error."""
    lines = [f"error: {error.detail}"]
    lines += [f"  field:  {error.field}"] if error.field else []
    lines += [f"  remedy: {error.remedy}"] if error.remedy else []
    lines.append(f"  code:   {code_of(error)}")
    print("\n".join(clean(line) for line in lines), file=sys.stderr)
