"""The pages say what the code does."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.reference import DOCS, MADE, between_marks, commands

from onbeat.domain.states import TRANSITIONS, RunState
from onbeat.telemetry import Metrics

ROOT = DOCS.parent
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
OFFLINE = {"next", "version"}
"""Commands whose shown output depends on nothing but their arguments."""


@pytest.mark.parametrize("page", sorted(MADE))
def test_made_parts_of_pages_are_up_to_date(page: str) -> None:
    mark, make = MADE[page]
    shown = between_marks((DOCS / page).read_text(), mark)
    assert shown == make(), "run `python -m tests.docs.reference`"


def test_every_path_named_in_the_architecture_page_exists() -> None:
    named = re.findall(r"`(src/onbeat/[\w./]+)`", (DOCS / "architecture.md").read_text())
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_state_diagram_equals_the_transition_table() -> None:
    diagram = (DOCS / "architecture.md").read_text().split("stateDiagram-v2")[1].split("```")[0]
    drawn: dict[RunState | str, set[RunState]] = {state: set() for state in RunState}
    drawn[""] = set()
    for before, after in re.findall(r"(\S+) --> ([^\s:]+)", diagram):
        if after != "[*]":
            drawn["" if before == "[*]" else RunState(before)].add(RunState(after))
    assert drawn == {before: set(after) for before, after in TRANSITIONS.items()}


def test_metrics_page_names_every_metric_and_no_other() -> None:
    exported = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in Metrics().registry.collect()
    }
    page = (DOCS / "operations.md").read_text()
    assert set(re.findall(r"`(onbeat_\w+)(?:\{\w+\})?` \|", page)) == exported


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_pages_use_exist(page: Path) -> None:
    known = commands()
    for line in re.findall(r"(?:^\$ |`)onbeat ([a-z][^\n`]*)", page.read_text(), re.MULTILINE):
        words = line.split()
        if any(name.startswith(f"{words[0]} ") for name in known) and len(words) == 1:
            continue  # a whole group
        name = next((name for name in (" ".join(words[:count]) for count in (3, 2, 1)) if name in known), None)
        assert name is not None, line
        options = {
            option for parameter in known[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        used = {word.split("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]+(=\S*)?", word)}
        assert used <= options, line


def _offline_examples() -> list[tuple[str, str]]:
    """Commands in console blocks that need no server, and what the page says they print."""
    examples = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            for command, output in re.findall(
                r"^\$ (onbeat [^\n]+)\n(.*?)(?=^\$ |\Z)", block, re.DOTALL | re.MULTILINE
            ):
                if command.split()[1] in OFFLINE and output.strip():
                    examples.append((command, output))
    return examples


def test_there_are_offline_examples() -> None:
    assert _offline_examples()


@pytest.mark.parametrize(("command", "output"), _offline_examples())
def test_example_prints_what_the_page_shows(command: str, output: str) -> None:
    program, *arguments = shlex.split(command)
    call = f"import sys; from onbeat.cli.main import run; sys.exit(run({arguments!r}))"
    shown = subprocess.run(
        [sys.executable, "-c", call], capture_output=True, text=True, check=False, cwd=ROOT, timeout=30
    )
    assert program == "onbeat"
    assert _words(shown.stdout + shown.stderr) == _words(output)


def _words(text: str) -> list[str]:
    """Without the blanks and lines of tables, which depend on the terminal's width."""
    return re.sub(r"─+", " ", text).split()
