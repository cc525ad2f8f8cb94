"""Calling the command line in process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from onbeat.cli.main import run


@dataclass(frozen=True)
class Called:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Called]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """`call("next", "@daily", "--json")`, with nothing of the developer's own environment."""
    for name in ("ONBEAT_URL", "ONBEAT_API_KEY", "ONBEAT_API_KEY_FILE", "ONBEAT_DATA"):
        monkeypatch.delenv(name, raising=False)

    def called(*arguments: str) -> Called:
        code = run(arguments)
        captured = capsys.readouterr()
        return Called(code, captured.out, captured.err)

    return called
