"""What a plan runs: command lines, each of which can be run alone as `python -m bench.<line>`.

There is no scenario for pages of a dashboard, because onbeat has no dashboard.
"""

from __future__ import annotations

from typing import Final

SMOKE: Final = (
    "store_life_cycle --jobs 2000 --fires 2000",
    "end_to_end --rate 50 --seconds 1",
    "bare_design --fires 500",
    "sustained --beyond 50 --seconds 1 --steps 1",
    "claims --engine sqlite --blocked 1000 --later 100 --rounds 1 --claimers 2",
    "api --jobs 500 --batches 250 --reads 10",
    "wake --jobs 2000 --outage 60 --fresh 5",
    "idle --jobs 3600 --seconds 1",
)
"""A second of each cheap scenario: tests/bench runs it, so that none rots."""

QUICK: Final = (
    "store_life_cycle --jobs 100000 --fires 100000",
    "store_life_cycle --jobs 100000 --fires 50000 --engine postgres",
    "end_to_end --rate 13000 --seconds 15",
    "end_to_end --rate 13000 --seconds 15 --delivery-processes 1",
    "end_to_end --rate 4000 --seconds 15 --workers 2",
    "end_to_end --rate 9000 --seconds 15 --engine postgres",
    "end_to_end --rate 9000 --seconds 15 --engine postgres --nodes 2",
    "end_to_end --rate 9000 --seconds 15 --engine postgres --nodes 3",
    "bare_design --fires 40000",
    "start_lag --rates 1,100,1000,2000,6000 --seconds 10",
    "start_lag --rates 2000 --seconds 10 --spread 1",
    "start_lag --rates 100,2000 --seconds 10 --engine postgres",
    "growth --jobs 10000,100000,1000000 --seconds 10",
    "growth --jobs 10000,100000 --seconds 10 --engine postgres",
    "long_runs --rate 2000 --seconds 20",
    "slow_receivers --seconds 15",
    "wake --jobs 100000",
    "claims --blocked 100000 --rounds 3",
    "api --jobs 20000 --batches 1000 --reads 200",
    "idle --jobs 100000 --seconds 10",
)
"""Minutes: sizes at which the order of magnitude is right."""

FULL: Final = (
    "store_life_cycle",
    "store_life_cycle --engine postgres",
    "end_to_end --rate 13000 --seconds 60",
    *(f"end_to_end --rate 13000 --seconds 60 --delivery-processes {count}" for count in (1, 2)),
    "sustained --seconds 60",
    "sustained --seconds 60 --delivery-processes 1",
    *(f"sustained --seconds 60 --engine postgres --beyond 8000 --nodes {nodes}" for nodes in (1, 2)),
    *(f"end_to_end --rate 6000 --seconds 60 --workers {workers}" for workers in (1, 2, 4)),
    *(f"end_to_end --rate 9000 --seconds 60 --engine postgres --nodes {nodes}" for nodes in (1, 2, 3)),
    "bare_design",
    "start_lag --rates 1,10,100,1000,2000,4000,6000 --seconds 30",
    "start_lag --rates 1,10,100,1000,2000,4000,6000 --seconds 30 --engine postgres",
    "start_lag --rates 100,1000,2000,4000 --seconds 30 --spread 1",
    "start_lag --rates 100,1000,2000 --seconds 30 --spread 1 --engine postgres",
    "growth --jobs 10000,100000,1000000,10000000 --seconds 30",
    "growth --jobs 10000,100000,1000000,10000000 --seconds 30 --engine postgres",
    "long_runs --rate 6000 --seconds 300",
    "long_runs --rate 6000 --seconds 300 --engine postgres --nodes 2 --workers 0",
    "slow_receivers --seconds 60",
    "slow_receivers --seconds 60 --engine postgres",
    "wake",
    "wake --engine postgres",
    "claims",
    "claims --engine sqlite",
    "api",
    "idle",
    "retention",
    "hand_off",
    "hand_off --pooled",
    "node_kill",
    "peers",
)
"""Hours: the sizes for which design §8 asks for figures."""

PLANS: Final = {"smoke": SMOKE, "quick": QUICK, "full": FULL}
