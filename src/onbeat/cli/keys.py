"""`onbeat keys …`: who may use the API. Works on the data file, or through a running server with an admin key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onbeat.cli.connection import JsonOption
from onbeat.cli.offline import NAMESPACE, OptionalServer, on_file_or_server
from onbeat.cli.processes import DataOption, settings_from
from onbeat.cli.terminal import print_fields, print_json, print_table
from onbeat.domain.errors import RequestError

if TYPE_CHECKING:
    from onbeat.app.services import Services
    from onbeat.store.values import ApiKey

app = typer.Typer(help="API keys: create, list, revoke.", no_args_is_help=True)


@app.command("create")
def create_key(
    name: Annotated[str, typer.Option("--name", help="Whose or what for.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="jobs:read, jobs:write, runs:read, runs:write, runs:claim or admin; may be repeated. Default: admin.",
        ),
    ] = None,
    expires: Annotated[str | None, typer.Option("--expires", metavar="LENGTH", help="Valid for this long.")] = None,
    data: DataOption = None,
    server: OptionalServer = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key. Its text is shown once, now."""
    from onbeat.domain.duration import parse_duration

    scopes = tuple(scope) if scope else ("admin",)
    expires_in_s = None if expires is None else parse_duration(expires, field="--expires")

    async def on_file(services: Services) -> dict[str, Any]:
        key, text = await services.keys.create(name=name, scopes=scopes, namespace=NAMESPACE, expires_in_s=expires_in_s)
        return {**_shown(key), "key": text}

    request: dict[str, Any] = {"name": name, "scopes": list(scopes)}
    if expires_in_s is not None:
        request["expires_in_s"] = expires_in_s
    created = on_file_or_server(server, settings_from(data=data), file=on_file, api=lambda api: api.create_key(request))
    if as_json:
        print_json(created)
        return
    print_fields([(field, value) for field, value in created.items() if field != "key"])
    print(f"\n{created['key']}\n\nKeep it: it is shown only now. Clients read it from ONBEAT_API_KEY.")


@app.command("list")
def list_keys(data: DataOption = None, server: OptionalServer = None, as_json: JsonOption = False) -> None:
    """Every key, revoked ones too; never its text."""

    async def on_file(services: Services) -> dict[str, Any]:
        return {"items": [_shown(key) for key in await services.keys.find()]}

    page = on_file_or_server(server, settings_from(data=data), file=on_file, api=lambda api: api.find_keys())
    if as_json:
        print_json(page)
        return
    print_table(
        ("id", "name", "scopes", "created", "last used", "expires", "revoked"),
        [
            (
                key["id"],
                key["name"],
                " ".join(key["scopes"]),
                *(key.get(moment) or "" for moment in ("created_at", "last_used_at", "expires_at", "revoked_at")),
            )
            for key in page["items"]
        ],
        empty="No keys.",
    )


@app.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `onbeat keys list` shows it.")],
    data: DataOption = None,
    server: OptionalServer = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse a key from now on; running servers notice within 5 s."""

    async def on_file(services: Services) -> bool:
        return await services.keys.revoke(key_id)

    def by_api(api: Any) -> bool:
        api.revoke_key(key_id)
        return True

    if not on_file_or_server(server, settings_from(data=data), file=on_file, api=by_api):
        raise RequestError(f"there is no valid key {key_id!r}", field="ID", remedy="see `onbeat keys list`")
    if as_json:
        print_json({"revoked": key_id})
    else:
        print_fields([("revoked", key_id)])


def _shown(key: ApiKey) -> dict[str, Any]:
    from onbeat.domain.instants import format_instant

    moments = {
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    }
    return {
        "id": key.key_id,
        "name": key.name,
        "scopes": list(key.scopes),
        **{name: None if at is None else format_instant(at) for name, at in moments.items()},
    }
