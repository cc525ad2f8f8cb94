"""The page `What happens when …` names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    line
    for line in (ROOT / "docs/what-happens-when.md").read_text().splitlines()
    if line.startswith("| ") and "`tests/" in line
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_line_names_tests_that_exist(row: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", row)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_page_has_a_line_for_each_question_of_the_issue() -> None:
    page = "\n".join(ROWS)
    for word in ("worker dies", "process dies", "slow", "lies", "two processes", "steps back", "an hour", "a month"):
        assert word in page
