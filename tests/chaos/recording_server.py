"""`onbeat serve` whose store records its calls about leases: `python recording_server.py DATA PORT CALLS`.

The process is the product's own but for the wrapper around its store.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from onbeat.app import services as services_module
from onbeat.app.node import serve
from onbeat.config import load_settings
from onbeat.store.open import open_store
from onbeat.telemetry import configure_logging
from onbeat.testing.recording import CallLog, RecordingStore


def read_time() -> int:
    """The time of all that record, also where the process is told another one (skewed_host.py)."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000


def main() -> None:
    data, port, calls = sys.argv[1:]

    async def open_recorded(url: str) -> Any:
        return RecordingStore(await open_store(url), CallLog(Path(calls), read_time=read_time))

    # The composition root picks it up by name.
    setattr(services_module, "open_store", open_recorded)
    settings = load_settings(overrides={"data": data, "port": int(port)})
    configure_logging(level=settings.log_level)
    sys.exit(asyncio.run(serve(settings)))


if __name__ == "__main__":
    main()
