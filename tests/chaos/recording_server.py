"""`onbeat serve` whose store records its calls about leases: `python recording_server.py DATA PORT CALLS`.

The process is the product's own but for the wrapper around its store.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from onbeat.app import serve
from onbeat.app import services as services_module
from onbeat.config import load_settings
from onbeat.store.open import open_store
from onbeat.testing.recording import CallLog, RecordingStore


def main() -> None:
    data, port, calls = sys.argv[1:]

    async def open_recorded(url: str) -> Any:
        return RecordingStore(await open_store(url), CallLog(Path(calls)))

    # The composition root picks it up by name.
    setattr(services_module, "open_store", open_recorded)
    sys.exit(asyncio.run(serve(load_settings(overrides={"data": data, "port": int(port)}))))


if __name__ == "__main__":
    main()
