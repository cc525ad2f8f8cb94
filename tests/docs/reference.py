"""The parts of docs/ that are made from the code: the table of settings and the reference of commands.

`python -m tests.docs.reference` writes them into the pages again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main

from onbeat.cli.main import app
from onbeat.config import Settings

DOCS = Path(__file__).parents[2] / "docs"


def settings_table() -> str:
    """One row per setting: name, default, meaning with bounds."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = field.default
        if isinstance(default, tuple):
            shown = ", ".join(map(str, default)) or "none"
        else:
            shown = "none" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
        rows.append(f"| `{name}` | {shown} | {field.description}{_bounds(name)} |")
    return "\n".join(rows)


def _bounds(name: str) -> str:
    schema = Settings.model_json_schema()["properties"][name]
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high = schema.get("maximum")
    if high is None:
        return f" ({', '.join(schema['enum'])})" if "enum" in schema else ""
    start = f"{low:,g}" if above is None else f"more than {above:,g}"
    return f" ({start} to {high:,g})"


def commands() -> dict[str, Any]:
    """Every command that can be called, by its words: `jobs create`."""
    found: dict[str, Any] = {}

    def collect(command: Any, words: tuple[str, ...]) -> None:
        for name, child in getattr(command, "commands", {}).items():
            collect(child, (*words, name))
        if not hasattr(command, "commands"):
            found[" ".join(words)] = command

    collect(typer.main.get_command(app), ())
    return found


def command_reference() -> str:
    """One section per command: what it does, its arguments and options."""
    return "\n\n".join(_section(words, command) for words, command in commands().items())


def _section(words: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    placed = "".join(f" {_shown(argument)}" for argument in arguments)
    lines = [f"### `onbeat {words}{placed}`", "", re.sub(r"\s*\n\s*", " ", command.help.strip())]
    listed = [f"- `{_shown(argument)}`: {argument.help}" for argument in arguments]
    for option in options:
        if "--help" not in option.opts:
            names = ", ".join([*option.opts, *option.secondary_opts])
            value = "" if option.is_flag else f" {_shown(option)}"
            listed.append(f"- `{names}{value}`: {option.help}{' Required.' if option.required else ''}")
    return "\n".join([*lines, *(["", *listed] if listed else [])])


def _shown(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    is_optional = parameter.param_type_name == "argument" and not parameter.required
    return f"[{name}]" if is_optional else name


def between_marks(page: str, mark: str) -> str:
    """The made part of a page."""
    found = re.search(rf"<!-- {mark} -->\n(.*)\n<!-- /{mark} -->", page, re.DOTALL)
    assert found is not None, f"the page has no <!-- {mark} --> … <!-- /{mark} -->"
    return found[1]


MADE = {"configuration.md": ("settings", settings_table), "cli.md": ("commands", command_reference)}
"""Page → mark and what stands between the marks."""


def write_pages() -> None:
    """Bring every page up to date."""
    for page, (mark, make) in MADE.items():
        path = DOCS / page
        text = path.read_text()
        start, end = f"<!-- {mark} -->\n", f"\n<!-- /{mark} -->"
        path.write_text(text.replace(start + between_marks(text, mark) + end, start + make() + end))


if __name__ == "__main__":
    write_pages()
