"""Which node serves which slots: rendezvous hashing (Thaler and Ravishankar, 1998), so that no node decides for others.

Each node draws a score for each slot from its own name; the highest score has the slot. Whoever knows the same names
comes to the same answer, a node that goes gives up its own slots and moves no other, and one that comes takes only
what becomes its own. While two nodes know different names a slot may have two owners for a moment: the fence of the
fire's identity makes that harmless.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection

import msgspec


class Share(msgspec.Struct, frozen=True):
    """What one of several nodes serves. Both together are every slot."""

    nodes: int
    own: tuple[int, ...]
    foreign: tuple[int, ...]


def share_of(node: str, *, nodes: Collection[str], slots: int) -> Share | None:
    """The share of `node` among `nodes`, itself included. None: there is no other, and all slots are its own."""
    others = set(nodes) - {node}
    if not others:
        return None
    own_scores = _scores(node, slots)
    their_scores = [(_scores(other, slots), other) for other in others]
    own: list[int] = []
    foreign: list[int] = []
    for slot in range(slots):
        mine = (own_scores[slot], node)
        is_own = all(mine > (scores[slot], other) for scores, other in their_scores)
        (own if is_own else foreign).append(slot)
    return Share(nodes=len(others) + 1, own=tuple(own), foreign=tuple(foreign))


def _scores(node: str, slots: int) -> tuple[int, ...]:
    """64 bits per slot. One call draws them all, and a slot's score does not depend on how many there are."""
    return struct.unpack(f">{slots}Q", hashlib.shake_128(node.encode()).digest(8 * slots))
