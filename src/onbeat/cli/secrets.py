"""`onbeat secrets …`: what signs deliveries. Values are shown by whoever has the data file and its master key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onbeat.cli.connection import JsonOption
from onbeat.cli.offline import NAMESPACE, OptionalServer, on_data_file, on_file_or_server
from onbeat.cli.processes import DataOption, settings_from
from onbeat.cli.terminal import print_json, print_table
from onbeat.domain.errors import DataFileInUse, RequestError

if TYPE_CHECKING:
    from onbeat.app.services import Services

app = typer.Typer(help="Signing secrets: rotate, list, show.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name.")]


@app.command("rotate")
def rotate_secret(
    name: NameArgument = "default",
    data: DataOption = None,
    server: OptionalServer = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new version, or the first. The one before goes on signing beside it for 24 hours."""

    async def on_file(services: Services) -> dict[str, Any]:
        return {"name": name, "secret": await services.secrets.rotate(NAMESPACE, name)}

    rotated = on_file_or_server(server, settings_from(data=data), file=on_file, api=lambda api: api.rotate_secret(name))
    if as_json:
        print_json(rotated)
    else:
        print(f"{rotated['secret']}\n\nGive it to your receivers now. The former one still signs for 24 hours.")


@app.command("list")
def list_secrets(data: DataOption = None, server: OptionalServer = None, as_json: JsonOption = False) -> None:
    """Names and versions; never a value."""
    from onbeat.domain.instants import format_instant

    async def on_file(services: Services) -> dict[str, Any]:
        return {
            "items": [
                {
                    "name": secret.name,
                    "version": secret.version,
                    "created_at": format_instant(secret.created_at),
                    "retires_at": None if secret.retires_at is None else format_instant(secret.retires_at),
                }
                for secret in await services.secrets.find(NAMESPACE)
            ]
        }

    page = on_file_or_server(server, settings_from(data=data), file=on_file, api=lambda api: api.find_secrets())
    if as_json:
        print_json(page)
        return
    print_table(
        ("name", "version", "created", "retires"),
        [
            (secret["name"], secret["version"], secret["created_at"], secret.get("retires_at") or "")
            for secret in page["items"]
        ],
        empty="No secrets yet. `default` comes into being with the first start.",
    )


@app.command("show")
def show_secret(name: NameArgument = "default", data: DataOption = None, as_json: JsonOption = False) -> None:
    """The current value. Only from the data file, while no server holds it: the API never tells a secret."""

    async def on_file(services: Services) -> str | None:
        return await services.secrets.reveal(NAMESPACE, name)

    try:
        text = on_data_file(settings_from(data=data), on_file)
    except DataFileInUse as in_use:
        raise DataFileInUse(
            in_use.detail, remedy="stop that process first, or make a new secret with `onbeat secrets rotate`"
        ) from None
    if text is None:
        raise RequestError(f"there is no secret named {name!r}", field="NAME", remedy="see `onbeat secrets list`")
    if as_json:
        print_json({"name": name, "secret": text})
    else:
        print(text)
