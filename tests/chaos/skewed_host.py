"""A process on a host whose wall clock is off: `python skewed_host.py SECONDS SCRIPT|-m MODULE [ARGUMENT…]`.

Everything in the process that asks Python for the time of day is told another one; the clocks of elapsed time are left
alone, as they are on such a host.
"""

from __future__ import annotations

import runpy
import sys
import time


def main() -> None:
    skew_ns = int(sys.argv[1]) * 1_000_000_000

    def skewed_ns() -> int:
        return time.clock_gettime_ns(time.CLOCK_REALTIME) + skew_ns

    def skewed() -> float:
        return skewed_ns() / 1e9

    setattr(time, "time_ns", skewed_ns)
    setattr(time, "time", skewed)
    sys.argv = sys.argv[2:]
    if sys.argv[0] == "-m":
        sys.argv = sys.argv[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
