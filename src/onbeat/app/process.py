"""What a process calls itself, and how it says goodbye."""

from __future__ import annotations

import gc
import os
import socket

EXIT_OK = 0
EXIT_GAVE_BACK = 75
"""The stop's limit passed with runs in flight; they were given back and start again elsewhere (EX_TEMPFAIL)."""


def process_name() -> str:
    """Host, process and a few random letters: unique among all nodes and workers, readable at night."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


def spare_the_collector() -> None:
    """Let the cycle collector look less often: what exists at the start stays, and fires make hardly any cycles.

    Measured on bench/store_life_cycle.py: 6 % less CPU per fire, no growth of memory.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
