"""Reads an engine's SQL, one file per noun: `-- name: claim_ready`, a comment with reason and index, a statement."""

from __future__ import annotations

import re
from importlib.resources import files

_HEADER = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_named_queries(package: str, noun: str) -> dict[str, str]:
    """The statements of `{noun}.sql` in `package` by name. Raises ValueError on a name given twice."""
    pieces = _HEADER.split(files(package).joinpath(f"{noun}.sql").read_text(encoding="utf-8"))
    names, bodies = pieces[1::2], pieces[2::2]
    if len(set(names)) != len(names):
        raise ValueError(f"{noun}.sql names a query twice")
    return {
        name: "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
        for name, body in zip(names, bodies, strict=True)
    }
