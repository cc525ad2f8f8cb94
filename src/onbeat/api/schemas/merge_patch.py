"""JSON merge patches (RFC 7396), and their schema."""

from __future__ import annotations

from typing import Any

from onbeat.api.schemas.jobs import JobBody


def merge_patch(current: Any, patch: Any) -> Any:
    """Null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def describe_patch() -> dict[str, Any]:
    """The JSON schema of a patch of a job: every field may be left out, and null stands for its default."""
    body = JobBody.model_json_schema(ref_template="#/components/schemas/{model}")
    properties = {
        name: schema if name == "key" else {"anyOf": [schema, {"type": "null"}]}
        for name, schema in body["properties"].items()
        if name != "name"
    }
    return {
        "title": "JobPatch",
        "description": "Fields of a job to change",
        "type": "object",
        "additionalProperties": False,
        "properties": {"name": body["properties"]["name"], **properties},
    }
