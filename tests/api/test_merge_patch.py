"""The examples of RFC 7396, appendix A, and the schema that tells of our patches."""

from __future__ import annotations

from typing import Any

import pytest

from onbeat.api.schemas.merge_patch import describe_patch, merge_patch


@pytest.mark.parametrize(
    ("current", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_patches_merge_as_the_standard_says(current: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(current, patch) == merged


def test_every_field_of_a_patch_may_be_left_out_and_be_null_except_what_a_job_cannot_lose() -> None:
    patch = describe_patch()
    null = {"type": "null"}
    assert "required" not in str(patch["properties"]["target"])
    assert null in patch["properties"]["retry"]["anyOf"][0]["properties"]["initial_s"]["anyOf"]
    assert null in patch["properties"]["target"]["anyOf"][0]["properties"]["headers"]["anyOf"]
    assert "null" not in str(patch["properties"]["name"])
    assert "null" not in str(patch["properties"]["key"])
