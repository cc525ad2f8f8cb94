"""`onbeat nodes`: the processes behind a server."""

from __future__ import annotations

from onbeat.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connect
from onbeat.cli.terminal import print_json, print_table


def list_nodes(server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """The processes that work on the server's database: who lives, and whose clock is off. Needs an admin key."""
    with connect(server) as api:
        page = api.find_nodes()
    if as_json:
        print_json(page)
        return
    columns = ("name", "state", "seen_at", "version", "workers", "slots")
    print_table(
        (*(column.replace("_at", "") for column in columns), "warnings"),
        [
            (*("" if node[column] is None else node[column] for column in columns), "; ".join(node["warnings"]))
            for node in page["items"]
        ],
        empty="No nodes.",
    )
