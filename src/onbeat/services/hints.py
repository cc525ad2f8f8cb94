"""What other processes wrote reaches here who waits for it: claims, the dispatcher, the attempts of this process."""

from __future__ import annotations

from onbeat.services.dispatch import Dispatch
from onbeat.services.handoff import Handoff
from onbeat.services.running import RunningHere
from onbeat.services.wake import Wake
from onbeat.store.contract import Store
from onbeat.store.hints import Hint


class Hints:
    """Wakes whoever would find it by looking, only later."""

    def __init__(
        self, *, store: Store, handoff: Handoff, dispatch: Dispatch, dispatch_wake: Wake, running: RunningHere
    ) -> None:
        self._store = store
        self._handoff = handoff
        self._dispatch = dispatch
        self._dispatch_wake = dispatch_wake
        self._running = running

    async def listen(self) -> bool:
        """Make sure that hints are heard. False: for now they are not, and everything is found by looking."""
        return await self._store.listen(self.heed)

    def heed(self, hint: Hint) -> None:
        """Look at once where the hint says."""
        if hint.ready_at is not None:
            self._handoff.wake_all()
        if self._dispatch.serves_any(hint.due):
            self._dispatch_wake.set()
        self._running.doubt(hint.stopped)
