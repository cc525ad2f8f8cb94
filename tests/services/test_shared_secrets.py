"""Signing secrets of several nodes: all sign with the same, whoever was the first to make it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.sharing import sharing


async def test_nodes_that_start_together_agree_on_the_first_secret(tmp_path: Path) -> None:
    async with sharing(tmp_path / "onbeat.db", nodes=4) as nodes:
        signing = await asyncio.gather(*(node.secrets.signing("default", "default") for node in nodes))
        assert len(set(signing)) == 1
        assert len(await nodes[0].store.access.find_secrets("default")) == 1


async def test_rotations_on_several_nodes_at_once_each_make_a_version(tmp_path: Path) -> None:
    async with sharing(tmp_path / "onbeat.db", nodes=4) as nodes:
        made = await asyncio.gather(*(node.secrets.rotate("default", "main") for node in nodes))
        versions = await nodes[0].store.access.find_secrets("default", "main")
        assert sorted(version.version for version in versions) == [1, 2, 3, 4]
        assert [version.version for version in versions if version.retires_at is None] == [4]
        assert await nodes[1].secrets.reveal("default", "main") in made
