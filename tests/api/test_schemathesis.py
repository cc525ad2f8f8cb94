"""The OpenAPI document against the running server: every answer is one that the document tells of.

Examples, the coverage of each constraint, and fuzzing with data that fits and data that does not. What the document
cannot say (which cron expressions are valid) is not held against it: refusing data that fits is no failure here.
"""

from __future__ import annotations

import asyncio

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from tests.api.bodies import ContextMaker
from tests.api.conftest import KeyMaker

from onbeat.api.application import build_api
from onbeat.app.api_server import ApiServer

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "unsupported_method",
    "allow_header_conformance",
    "negative_data_rejection",
)
BOUND_S = 25
NO_HTTP = b"Invalid HTTP request received."
"""uvicorn's own answer to what is not HTTP: a header with letters that none may have never reaches the API."""


@pytest.mark.slow
async def test_every_answer_is_one_that_the_document_tells_of(make_context: ContextMaker, bearer: KeyMaker) -> None:
    key = (await bearer("admin"))["authorization"].removeprefix("Bearer ")
    server = ApiServer("127.0.0.1", 0)
    url = await server.serve(build_api(make_context(keyed=True)))
    try:
        failures, answers = await asyncio.to_thread(explore, f"{url}/openapi.json", key)
    finally:
        await server.stop()
    assert not failures, "\n\n".join(failures[:10])
    assert answers > 10  # it was really asked; how much fits into the time depends on the machine


def explore(url: str, key: str) -> tuple[list[str], int]:
    """What was found wrong, and how many answers were looked at."""
    config = SchemathesisConfig.from_dict(
        {
            "seed": 1,
            "max-time": BOUND_S,
            "auth": {"openapi": {"ApiKey": {"bearer": key}}},
            "continue-on-failure": True,
            "generation": {"max-examples": 15, "deterministic": True, "no-shrink": True, "database": "none"},
            "checks": {"enabled": False, **{check: {"enabled": True} for check in CHECKS}},
            "phases": {"stateful": {"enabled": False}},
            # A batch is accepted with what is wrong in it: each job is answered by itself.
            "operations": [
                {"include-path": "/v1/jobs:batch", "checks": {"negative_data_rejection": {"enabled": False}}}
            ],
        }
    )
    failures: dict[str, None] = {}
    answers = 0
    # A claim waits up to 30 s for work, which is most of our time; tests/api/test_workers.py looks at it.
    schema = schemathesis.openapi.from_url(url, config=config).exclude(path="/v1/runs/claim")
    for event in from_schema(schema).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            failures[str(event)] = None
        if isinstance(event, events.ScenarioFinished):
            answers += len(event.recorder.interactions)
            for case_id, checks in event.recorder.checks.items():
                answer = event.recorder.interactions[case_id].response
                if answer is not None and answer.content == NO_HTTP:
                    continue
                for check in checks:
                    if check.failure_info is not None:
                        case = event.recorder.cases[case_id].value
                        failure = check.failure_info.failure
                        failures[f"{check.name} {case.method} {case.formatted_path}: {failure}\n{case.body!r:.600}"] = (
                            None
                        )
    return list(failures), answers
