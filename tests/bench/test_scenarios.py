"""Each cheap scenario measures something when it is run for a second, as a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.__main__ import run_once
from bench.figures import Result
from bench.plans import FULL, PLANS, QUICK, SMOKE

BENCH = Path(__file__).parent.parent.parent / "bench"


@pytest.mark.slow
@pytest.mark.timeout(400)  # most of it is waiting for processes to start
@pytest.mark.parametrize("line", SMOKE)
def test_a_scenario_runs_for_a_second(line: str, tmp_path: Path) -> None:
    found = run_once(line, tmp_path)
    assert isinstance(found, Result), found
    assert found.figures
    names = [figure.name for figure in found.figures]
    assert len(names) == len(set(names))
    assert list(tmp_path.iterdir()) == [], "what a scenario made is gone"


def test_plans_name_scenarios_that_exist_and_the_full_one_has_them_all() -> None:
    modules = [*BENCH.glob("*.py"), BENCH / "peers" / "__main__.py"]
    scenarios = {
        path.parent.name if path.stem == "__main__" else path.stem
        for path in modules
        if "run_alone(" in path.read_text() and path.stem != "scenario"
    }
    for plan in PLANS.values():
        assert {line.split()[0] for line in plan} <= scenarios
    assert {line.split()[0] for line in FULL} == scenarios
    assert len(set(QUICK)) == len(QUICK)


def test_a_scenario_that_fails_says_why() -> None:
    found = run_once("end_to_end --rate 0 --seconds 1", None)
    assert isinstance(found, str)
    assert "Error" in found
