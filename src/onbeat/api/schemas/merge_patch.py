"""JSON merge patches (RFC 7396), and their schema."""

from __future__ import annotations

from typing import Any, Final

from onbeat.api.schemas.jobs import JobBody

NEVER_REMOVED: Final = ("name", "key")


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
    patch = _patch_of(body, body["$defs"])
    for name in NEVER_REMOVED:
        patch["properties"][name] = _without_null(body["properties"][name])
    return patch | {"title": "JobPatch", "description": "Fields of a job to change"}


def _patch_of(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Objects merge, at every depth, so no field of theirs is required; lists and plain values are replaced."""
    if "$ref" in schema:
        return _patch_of(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if schema.get("type") != "object":
        return {word: value for word, value in schema.items() if word != "default"}
    fields = {name: _or_null(_patch_of(part, definitions)) for name, part in schema.get("properties", {}).items()}
    others = schema.get("additionalProperties", True)
    return {
        "type": "object",
        "properties": fields,
        "additionalProperties": _or_null(others) if isinstance(others, dict) else others,
    }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    told = {word: value for word, value in schema.items() if word not in ("anyOf", "default")}
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return told | (choices[0] if choices else {})


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema
