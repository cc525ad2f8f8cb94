"""What is counted of a peer's turn, and that locks name no registry."""

from __future__ import annotations

import re

import pytest
from bench.figures import Figure, Result
from bench.markdown import Report, table_lines
from bench.peers.contest import judge, lag_ms
from bench.peers.entrants import ENTRANTS
from bench.peers.environment import ADAPTERS, REQUIREMENTS
from bench.sink import Arrival
from bench.summary import summarise


def arrival(webhook_id: str, at_s: float) -> Arrival:
    return Arrival(at_s, webhook_id, 100.0, "127.0.0.1")


def test_lost_and_repeated_jobs_are_counted_by_their_ids() -> None:
    arrivals = [arrival("a", 100.5), arrival("b", 101), arrival("a", 105), arrival("a", 106), arrival("c", 102)]
    turn = judge(arrivals, 5, 100.0, own_cpu_s=1, service_cpu_s=2)
    assert (turn.arrived, turn.lost, turn.twice) == (3, 2, 1)
    assert turn.lags_ms == [500, 1_000, 2_000]
    assert (turn.last_s, turn.fires_per_s) == (2, 1.5)
    assert (lag_ms(turn, 0.5), lag_ms(turn, 1.0)) == (1_000, 2_000)


def test_of_a_peer_that_did_nothing_all_is_lost_and_there_is_no_lag() -> None:
    turn = judge([], 5, 100.0, own_cpu_s=1, service_cpu_s=2)
    assert (turn.lost, turn.twice) == (5, 0)
    with pytest.raises(ValueError, match="nothing was measured"):
        lag_ms(turn, 0.5)


def test_figures_of_several_stand_in_one_table() -> None:
    figures = [Figure("rate", value, "per s", of=who) for who, value in (("ours", 5), ("theirs", 7))]
    summary = summarise("peers", [Result("here", [*figures, Figure("lag", 2, "ms", of="theirs")], ["left out"])], [])
    lines = table_lines(Report("full", 1, "a", "b", {}, {}, (1, 2, 3), (4, 5, 6), [summary]))
    assert lines[-6:] == [
        "| medians | rate (per s) | lag (ms) |",
        "|---|---:|---:|",
        "| ours | 5.00 |  |",
        "| theirs | 7.00 | 2.00 |",
        "",
        "- left out",
    ]


def test_everybody_says_how_it_is_set_up_and_all_but_onbeat_what_it_lacks() -> None:
    assert len({peer.name for peer in ENTRANTS}) == len(ENTRANTS)
    for peer in ENTRANTS:
        assert peer.settings
        assert bool(peer.lacks) != peer.name.startswith("onbeat")


@pytest.mark.parametrize("lock", ["python.lock", "package-lock.json"])
def test_locks_of_peers_have_hashes_and_name_no_registry(lock: str) -> None:
    text = (REQUIREMENTS / lock).read_text()
    hosts = set(re.findall(r"https?://([^/\"\s]+)", text))
    assert {host for host in hosts if "registry" in host or "pypi" in host or "pythonhosted" in host} == set()
    assert "resolved" not in text
    assert "--hash=sha256:" in text or '"integrity": "sha512-' in text


def test_every_adapter_is_used() -> None:
    entrants = (ADAPTERS.parent / "entrants.py").read_text()
    adapters = list(ADAPTERS.glob("*_jobs.*"))
    assert len(adapters) >= 5
    assert [
        path.name for path in adapters if f'"{path.name}"' not in entrants and f'"{path.stem}"' not in entrants
    ] == []
