"""Slots among nodes: every slot has one owner, a change of the nodes moves no more than it must, shares are fair."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.rendezvous import Share, share_of

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=30)
SLOTS = 256


def shares(nodes: set[str], *, slots: int = SLOTS) -> dict[str, Share]:
    """The share that each of several nodes takes by itself."""
    found = {node: share_of(node, nodes=nodes, slots=slots) for node in nodes}
    return {node: share for node, share in found.items() if share is not None}


def owners(nodes: set[str], *, slots: int = SLOTS) -> dict[int, str]:
    return {slot: node for node, share in shares(nodes, slots=slots).items() for slot in share.own}


@given(st.sets(NAMES, min_size=2, max_size=8), st.integers(1, 300))
def test_every_slot_has_exactly_one_owner(nodes: set[str], slots: int) -> None:
    taken = shares(nodes, slots=slots)
    assert sorted(slot for share in taken.values() for slot in share.own) == list(range(slots))
    for share in taken.values():
        assert sorted(share.own + share.foreign) == list(range(slots))
        assert share.nodes == len(nodes)


@given(st.sets(NAMES, min_size=3, max_size=8), st.data())
def test_a_node_that_goes_gives_up_its_slots_and_moves_no_other(nodes: set[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(nodes)))
    before, after = owners(nodes), owners(nodes - {gone})
    assert {slot for slot in before if before[slot] != after[slot]} == {
        slot for slot, node in before.items() if node == gone
    }


@given(st.sets(NAMES, min_size=2, max_size=8))
def test_no_node_has_far_more_than_its_part(nodes: set[str]) -> None:
    part = SLOTS / len(nodes)
    # Owners are drawn, so shares scatter by about the root of the part; six times that is out of reach of chance.
    assert max(len(share.own) for share in shares(nodes).values()) <= part + 6 * part**0.5


@given(st.sets(NAMES, min_size=2, max_size=5), st.integers(1, 100))
def test_more_slots_leave_the_owners_of_the_first_as_they_are(nodes: set[str], slots: int) -> None:
    many = owners(nodes, slots=SLOTS)
    assert owners(nodes, slots=slots) == {slot: many[slot] for slot in range(slots)}


@given(st.sets(NAMES, max_size=1))
def test_a_node_without_others_has_no_share_but_everything(nodes: set[str]) -> None:
    assert share_of("a", nodes={"a"}, slots=SLOTS) is None
    assert share_of("a", nodes=[], slots=SLOTS) is None


def test_nodes_of_every_release_agree() -> None:
    """The scores are an agreement between processes: other scores need a time in which both are understood."""
    assert owners({"a", "b", "c"}, slots=12) == dict(enumerate("bbabbbaccbca"))
