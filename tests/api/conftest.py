"""The real application over a real SQLite file; no loops run, so a test decides what happens when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from tests.api.bodies import BASE_URL, ContextMaker

from onbeat.api.application import build_api
from onbeat.api.context import ApiContext
from onbeat.app.services import Services, open_services
from onbeat.config import Settings
from onbeat.telemetry import Metrics

KeyMaker = Callable[..., Awaitable[dict[str, str]]]


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    async with open_services(Settings(data=str(tmp_path / "onbeat.sqlite3"))) as opened:
        yield opened


@pytest.fixture
def make_context(services: Services) -> ContextMaker:
    def make(*, keyed: bool = False, allowed_hosts: tuple[str, ...] = ()) -> ApiContext:
        return ApiContext(
            jobs=services.jobs,
            calendars=services.calendars,
            blackouts=services.blackouts,
            almanac=services.almanac,
            runs=services.runs,
            resumptions=services.resumptions,
            callbacks=services.callbacks,
            pauses=services.pauses,
            backfills=services.backfills,
            leasing_for=services.leasing_for,
            keys=services.keys if keyed else None,
            secrets=services.secrets,
            idempotency=services.idempotency,
            nodes=services.nodes,
            clock=services.clock,
            counts=services.store.counts,
            failing_loops=list,
            is_stopping=lambda: False,
            metrics=Metrics(),
            allowed_hosts=allowed_hosts,
            version="1.2.3",
        )

    return make


@pytest.fixture(scope="session")
def api_over() -> Callable[[ApiContext], FastAPI]:
    """The application, over another context for each test: to make its routes takes longer than most tests do."""
    made: dict[bool, FastAPI] = {}

    def over(context: ApiContext) -> FastAPI:
        is_keyed = context.keys is not None
        app = made[is_keyed] = made.get(is_keyed) or build_api(context)
        app.state.context = context
        return app

    return over


@pytest.fixture
def app(make_context: ContextMaker, api_over: Callable[[ApiContext], FastAPI]) -> FastAPI:
    return api_over(make_context())


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a development server: no keys."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE_URL) as client:
        yield client


@pytest.fixture
async def keyed_http(
    make_context: ContextMaker, api_over: Callable[[ApiContext], FastAPI]
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that wants keys; it sends none by itself."""
    transport = httpx.ASGITransport(api_over(make_context(keyed=True)))
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
        yield client


@pytest.fixture
def bearer(services: Services) -> KeyMaker:
    """Makes a key and answers the header that carries it."""

    async def make(*scopes: str, namespace: str = "default", expires_in_s: int | None = None) -> dict[str, str]:
        _, text = await services.keys.create(
            name="a test", scopes=scopes, namespace=namespace, expires_in_s=expires_in_s
        )
        return {"authorization": f"Bearer {text}"}

    return make
