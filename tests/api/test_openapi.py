"""The OpenAPI document and docs/api.md say what the code does."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import httpx
from fastapi import FastAPI
from tests.api.bodies import ContextMaker, Json

from onbeat.api.application import build_api
from onbeat.api.problems import PROBLEMS
from onbeat.api.schemas.jobs import EXAMPLE_JOB
from onbeat.app.api_server import ApiServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()
DECIDING = ("domain", "services", "api")
"""Layers whose refusals reach a caller; the others refuse while they send."""
NEVER_OVER_HTTP = {"config_invalid"}


async def test_the_document_is_served_and_whole(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    references = {part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]}
    assert references <= schemas.keys()
    assert "HTTPValidationError" not in schemas
    assert document["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"


def test_every_error_of_every_operation_is_a_problem(app: FastAPI) -> None:
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            errors: Json = {status: told for status, told in operation["responses"].items() if status >= "400"}
            if path == "/readyz":
                continue
            for status, told in errors.items():
                assert list(told["content"]) == ["application/problem+json"], (method, path, status)


def test_operations_have_short_names_of_their_own(app: FastAPI) -> None:
    names = [
        operation["operationId"] for operations in app.openapi()["paths"].values() for operation in operations.values()
    ]
    assert len(names) == len(set(names))
    assert "create_job" in names


def test_every_code_is_in_the_table_of_the_page() -> None:
    for code, (status, _) in PROBLEMS.items():
        if code not in NEVER_OVER_HTTP:
            assert f"`{code}`" in PAGE, code
            assert str(status) in PAGE


CODE_OF_A_DEFINITION = r'(?:(?:DefinitionError|_refusal)\(\s*|read_stored\([^)]*?code=)"([a-z_]+)"'


def test_every_code_of_a_definition_is_in_the_table_of_the_page() -> None:
    codes = {
        code
        for layer in DECIDING
        for module in (ROOT / "src" / "onbeat" / layer).rglob("*.py")
        for code in re.findall(CODE_OF_A_DEFINITION, module.read_text())
    }
    assert len(codes) > 20
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()


async def test_the_jobs_that_document_and_page_show_can_be_created(http: httpx.AsyncClient) -> None:
    (shown,) = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) if '"target"' in block)
    assert shown == EXAMPLE_JOB
    assert (await http.post("/v1/jobs", json=shown)).status_code == 201


async def test_the_shell_worker_of_the_page_works(make_context: ContextMaker) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    server = ApiServer("127.0.0.1", 0)
    script = script.replace("http://127.0.0.1:8623", await server.serve(build_api(make_context())))
    shell = await asyncio.create_subprocess_exec(
        "sh", "-eu", "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    shown, complaints = await shell.communicate()
    await server.stop()
    assert (shell.returncode, complaints) == (0, b"")
    assert b'"state":"succeeded"' in shown.splitlines()[-1]


def test_problems_are_described_as_they_are(app: FastAPI) -> None:
    schema = app.openapi()["components"]["schemas"]["Problem"]
    assert set(schema["required"]) == {"type", "title", "status", "code", "detail"}
    assert {"field", "remedy", "request_id", "errors"} <= schema["properties"].keys()


def test_every_operation_except_probes_and_callbacks_wants_a_key(app: FastAPI) -> None:
    without = {
        "/healthz",
        "/readyz",
        *(f"/v1/runs/{{run_id}}/{call}" for call in ("complete", "heartbeat", "progress")),
    }
    for path, operations in app.openapi()["paths"].items():
        for operation in operations.values():
            wanted: list[Json] = [] if path in without else [{"ApiKey": []}]
            assert operation.get("security", []) == wanted, path
