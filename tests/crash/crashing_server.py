"""A real scheduler process that kills itself with SIGKILL at one chosen point.

Started by test_kill_at_every_point.py as `python crashing_server.py DATA PORT POINT`. POINT is `none` or
`noun.method:when:nth`, `when` being `before` or `after` the call, or `inside` its transaction (where the decision is
made, after the read and before the write). Nouns are the store's, and `sender` for the points around a delivery.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from onbeat.app import deliverer as deliverer_module
from onbeat.app import services as services_module
from onbeat.app.node import DevMode, serve
from onbeat.config import Settings
from onbeat.delivery.request import Delivery
from onbeat.delivery.sender import Sender
from onbeat.domain.outcome import Outcome
from onbeat.store.contract import Store
from onbeat.store.open import open_store


class Point:
    """Where to die."""

    def __init__(self, text: str) -> None:
        self.name, self.when, nth = ("none", "", "1") if text == "none" else text.split(":")
        self._left = int(nth)

    def reach(self, name: str, when: str) -> None:
        """Die if this is the point, for the nth time."""
        if (name, when) == (self.name, self.when):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class CrashingNoun:
    """Passes every call of one noun of the store through the point."""

    def __init__(self, noun: Any, name: str, point: Point) -> None:
        self._noun = noun
        self._name = name
        self._point = point

    def __getattr__(self, method: str) -> Any:
        call, name = getattr(self._noun, method), f"{self._name}.{method}"

        async def passed(*arguments: Any, **named: Any) -> Any:
            self._point.reach(name, "before")
            if "decide" in named:
                named["decide"] = self._inside(name, named["decide"])
            answer = await call(*arguments, **named)
            self._point.reach(name, "after")
            return answer

        return passed

    def _inside(self, name: str, decide: Callable[..., Any]) -> Callable[..., Any]:
        def decided(*arguments: Any) -> Any:
            verdict = decide(*arguments)
            self._point.reach(name, "inside")
            return verdict

        return decided


NOUNS = [
    name for name, part in vars(Store).items() if isinstance(part, property) and name not in ("slots", "is_shared")
]


class CrashingStore:
    """The real store, its nouns wrapped."""

    def __init__(self, store: Store, point: Point) -> None:
        self._store = store
        for noun in NOUNS:
            setattr(self, noun, CrashingNoun(getattr(store, noun), noun, point))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class CrashingSender(Sender):
    """The real sender; dies around handing a delivery over and around its outcome."""

    point: Point

    def send(self, deliveries: Sequence[Delivery], on_outcome: Callable[[Delivery, Outcome], None]) -> None:
        def heard(delivery: Delivery, outcome: Outcome) -> None:
            self.point.reach("sender.outcome", "before")
            on_outcome(delivery, outcome)
            self.point.reach("sender.outcome", "after")

        self.point.reach("sender.send", "before")
        super().send(deliveries, heard)
        self.point.reach("sender.send", "after")


def main() -> None:
    data, port, point_text = sys.argv[1:]
    point = Point(point_text)
    CrashingSender.point = point

    async def open_crashing(url: str) -> Any:
        return CrashingStore(await open_store(url), point)

    # The composition root picks both up by name: the process is the product's own but for these two.
    setattr(services_module, "open_store", open_crashing)
    setattr(deliverer_module, "Sender", CrashingSender)
    settings = Settings.model_validate(
        {
            "data": data,
            "master_key": os.environ.get("ONBEAT_MASTER_KEY"),
            "port": int(port),
            "lease_s": 1.0,
            "heartbeat_s": 0.25,
            "drain_s": 5.0,
            "log_level": "error",
            "public_url": f"http://127.0.0.1:{port}",
        }
    )
    sys.exit(asyncio.run(serve(settings, dev=DevMode())))


if __name__ == "__main__":
    main()
