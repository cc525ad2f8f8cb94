"""The OpenAPI document and docs/api.md say what the code does."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from fastapi import FastAPI
from tests.api.bodies import Json

from onbeat.api.problems import PROBLEMS

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
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
