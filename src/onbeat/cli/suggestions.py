"""What a newcomer can paste next. Every line works as it stands; tests/cli runs them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys

from onbeat.cli.connection import DEFAULT_SERVER

ANYWHERE = "http://127.0.0.1:8000/hook"


def suggestions(url: str, *, receiver: str | None) -> list[tuple[str, str]]:
    """Pairs of what it does and the command. Without a receiver the jobs call a usual local port."""
    onbeat = _program()
    server = "" if url == DEFAULT_SERVER else f" --server {url}"
    target = receiver or ANYWHERE
    job = {"key": "hello-curl", "name": "hello curl", "schedules": [{"every": "10s"}], "target": {"url": target}}
    body = shlex.quote(json.dumps(job))
    return [
        (
            "a job of your own, every 10 seconds",
            f"{onbeat} jobs create{server} --key hello --name hello --every 10s --url {target}",
        ),
        ("the same with curl", f"curl -sS {url}/v1/jobs -H 'content-type: application/json' -d {body}"),
        ("run it now, beside its schedule", f"{onbeat} jobs trigger hello{server}"),
        ("watch what becomes of its fires", f"{onbeat} runs list{server} --job hello --follow"),
        (
            "when would this run, and what does daylight saving do to it?",
            f"{onbeat} next '30 2 * * *' --tz America/New_York --count 3",
        ),
    ]


def _program() -> str:
    """How the user can start us: by name where that finds this program, else by the path it was started with."""
    started_as = os.path.abspath(sys.argv[0])
    found = shutil.which("onbeat")
    if found is not None and os.path.samefile(found, started_as):
        return "onbeat"
    relative = os.path.relpath(started_as)
    return shlex.quote(started_as if relative.startswith("..") else relative)
