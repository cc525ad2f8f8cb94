"""The data file: its lock, its place, its schema, and what survives a kill."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest
from tests.store.factories import NOW, Maker, new_job

from onbeat.domain.errors import ConfigError, DataFileInUse, SchemaTooNew
from onbeat.domain.ids import RunKey
from onbeat.domain.states import RunState
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.sqlite.connection import check_sqlite_version, open_writing_connection
from onbeat.store.sqlite.datafile import filesystem_of, refuse_network_filesystem, resolve_data_file
from onbeat.store.sqlite.migrate import Migration, load_migrations, migrate, read_schema_version
from onbeat.store.sqlite.store import check_data_file

HOLDER = """
import asyncio, sys
from onbeat.store.open import open_store
async def main():
    await open_store(sys.argv[1])
    print("open", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""

WRITER_THAT_DIES = """
import asyncio, os, signal, sys
from onbeat.store.open import open_store
from tests.store.factories import NOW, Maker
async def main():
    make = Maker(await open_store(sys.argv[1]))
    job = await make.job(job_id=42)
    for number in range(20):
        key, token = await make.running(job, NOW + number)
        await make.finish(key, token)
    await make.pending(job, NOW + 99)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""

STARTER = """
import asyncio, sys
from onbeat.domain.errors import DataFileInUse
from onbeat.store.open import open_store
async def main():
    try:
        store = await open_store(sys.argv[1])
    except DataFileInUse:
        print("in use")
        return
    print("open", flush=True)
    sys.stdin.read()
    await store.close()
asyncio.run(main())
"""


OPENER = """
import asyncio, sys
from onbeat.domain.errors import OnbeatError
from onbeat.store.open import open_store
try:
    asyncio.run(open_store(sys.argv[1]))
except OnbeatError as error:
    print(f"{error.code}: {error.detail}")
"""


def read_only(place: Path) -> list[str]:
    """What to put before a command that is to find `place` mounted read-only; nobody else sees that mount."""
    remount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", remount, str(place)]


def can_mount_read_only() -> bool:
    """Whether this machine lets us."""
    with tempfile.TemporaryDirectory() as place:
        command = [*read_only(Path(place)), "true"]
        return (
            shutil.which("unshare") is not None
            and subprocess.run(command, check=False, capture_output=True).returncode == 0
        )


def start(script: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "onbeat.db"


async def test_second_process_is_refused_with_the_pid_of_the_first_and_a_stale_lock_blocks_nobody(path: Path) -> None:
    holder = start(HOLDER, path)
    try:
        assert await asyncio.to_thread(read_line, holder) == "open"
        with pytest.raises(DataFileInUse, match=f"process {holder.pid} on "):
            await open_store(str(path))
    finally:
        holder.kill()
        holder.communicate()
    assert path.with_name("onbeat.db.lock").read_text().startswith(f"process {holder.pid} ")
    store = await open_store(str(path))
    await store.close()


async def test_second_store_of_the_same_process_is_refused_too(path: Path) -> None:
    store = await open_store(str(path))
    with pytest.raises(DataFileInUse, match=str(os.getpid())):
        await open_store(str(path))
    await store.close()
    await (await open_store(str(path))).close()


@pytest.mark.parametrize("is_fresh", [True, False], ids=["fresh file", "file with jobs"])
async def test_of_many_that_start_at_once_one_wins_and_migrates_once(path: Path, is_fresh: bool) -> None:
    if not is_fresh:
        store = await open_store(str(path))
        await Maker(store).job(job_id=42)
        await store.close()
    starters = [start(STARTER, path) for _ in range(8)]
    said = [await asyncio.to_thread(read_line, starter) for starter in starters]
    for starter in starters:
        starter.communicate("")
        assert starter.returncode == 0
    assert sorted(said) == ["in use"] * 7 + ["open"]  # the winner holds the file until all have said something
    assert check_data_file(path) == (len(load_migrations()), "ok")
    store = await open_store(str(path))
    assert (await store.jobs.get(42) is None) == is_fresh
    await store.close()


@pytest.mark.skipif(not can_mount_read_only(), reason="no mounts of our own here")
@pytest.mark.parametrize("is_fresh", [True, False], ids=["no file", "file with jobs"])
async def test_read_only_filesystem_is_a_clear_error_and_loses_nothing(path: Path, is_fresh: bool) -> None:
    if not is_fresh:
        store = await open_store(str(path))
        await Maker(store).job(job_id=42)
        await store.close()
    refused = subprocess.run(
        [*read_only(path.parent), sys.executable, "-c", OPENER, str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert refused.stdout.startswith("config_invalid: "), refused
    assert "cannot be written: Read-only file system" in refused.stdout
    assert path.exists() != is_fresh
    if not is_fresh:
        assert check_data_file(path) == (len(load_migrations()), "ok")


async def test_acknowledged_writes_survive_a_kill(path: Path) -> None:
    writer = start(WRITER_THAT_DIES, path)
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    store = await open_store(str(path))
    make = Maker(store)
    for number in range(20):
        assert (await make.view(RunKey(42, NOW + number))).state is RunState.SUCCEEDED
    assert (await make.view(RunKey(42, NOW + 99))).state is RunState.PENDING
    await store.close()
    assert check_data_file(path)[1] == "ok"


async def test_data_is_there_after_an_orderly_close_and_the_log_is_not(path: Path) -> None:
    store = await open_store(str(path))
    await store.jobs.create([new_job(job_id=7)], now=NOW)
    await store.close()
    assert not path.with_name("onbeat.db-wal").exists()
    store = await open_store(str(path))
    assert await store.jobs.get(7) is not None
    await store.close()


async def test_slots_are_fixed_when_the_database_is_created(path: Path) -> None:
    store = await open_store(str(path), slots=16)
    assert store.slots == 16
    await store.close()
    store = await open_store(str(path), slots=64)
    assert store.slots == 16
    await store.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/data/a.db", "/data/a.db"),
        ("sqlite:////data/a.db", "/data/a.db"),
        ("sqlite:///a.db", os.path.abspath("a.db")),
        ("a b.db", os.path.abspath("a b.db")),
    ],
)
def test_url_names_a_file(url: str, expected: str) -> None:
    assert str(resolve_data_file(url)) == expected


@pytest.mark.parametrize("url", ["", "sqlite://", "sqlite://host/a.db", "mysql:///a", ":memory:", "sqlite:///", "a\0b"])
def test_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        resolve_data_file(url)


async def test_missing_file_is_not_created_unasked(path: Path) -> None:
    with pytest.raises(ConfigError, match="no data file"):
        await open_store(str(path), create=False)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("place", ["missing/onbeat.db", "file/onbeat.db"])
async def test_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot be written"):
        await open_store(str(tmp_path / place))


async def test_file_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(ConfigError, match="another program"):
        await open_store(str(path))
    path.with_name("text.db").write_text("this is no database, " * 100)
    with pytest.raises(ConfigError, match="cannot be opened"):
        await open_store(str(path.with_name("text.db")))


MOUNTS = r"""
overlay / overlay rw 0 0
server:/export /mnt/nfs nfs4 rw 0 0
tmpfs /mnt/nfs/local tmpfs rw 0 0
//host/share /mnt/my\040share cifs rw 0 0
me@host: /home/me/remote fuse.sshfs rw 0 0
share /mnt/plan9 9p rw 0 0
"""


@pytest.mark.parametrize("place", ["/mnt/nfs", "/mnt/nfs/deep", "/mnt/my share", "/home/me/remote/x", "/mnt/plan9/sub"])
def test_network_filesystem_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match="network filesystem"):
        refuse_network_filesystem(Path(place), mounts=MOUNTS)


@pytest.mark.parametrize(
    ("place", "kind"), [("/", "overlay"), ("/mnt/nfs/local/x", "tmpfs"), ("/mnt/nfsx", "overlay"), ("/home", "overlay")]
)
def test_local_filesystem_is_accepted(place: str, kind: str) -> None:
    assert filesystem_of(Path(place), mounts=MOUNTS) == kind
    refuse_network_filesystem(Path(place), mounts=MOUNTS)
    refuse_network_filesystem(Path(place), mounts="")


def test_sqlite_that_can_lose_writes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"3\.51\.2"):
        check_sqlite_version("3.51.2")
    check_sqlite_version("3.51.3")
    check_sqlite_version(apsw.sqlite_lib_version())


def dump_schema(path: Path) -> str:
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name").fetchall()
    connection.close()
    return "\n\n".join(f"{row[0]};" for row in rows) + "\n"


async def test_all_migrations_make_the_schema_on_record(path: Path) -> None:
    await (await open_store(str(path))).close()
    recorded = Path(__file__).with_name("sqlite_schema.sql")
    assert dump_schema(path) == recorded.read_text(), "changed on purpose? then write the new dump to sqlite_schema.sql"


async def test_newer_schema_is_refused_with_both_versions_and_a_remedy(path: Path) -> None:
    await (await open_store(str(path))).close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE meta SET schema_version = 999")
    connection.close()
    with pytest.raises(SchemaTooNew, match=rf"999.*{len(load_migrations())}") as caught:
        await open_store(str(path))
    assert caught.value.remedy is not None
    with pytest.raises(SchemaTooNew):
        check_data_file(path)


async def test_older_schema_is_brought_up_step_by_step(path: Path) -> None:
    store: Store = await open_store(str(path))
    await store.jobs.create([new_job(job_id=7)], now=NOW)
    await store.close()
    steps = (
        *load_migrations(),
        Migration(len(load_migrations()) + 1, "more", "ALTER TABLE nodes ADD COLUMN more TEXT;"),
    )
    connection = open_writing_connection(str(path))
    migrate(connection, migrations=steps, slots=1, now=NOW)
    assert read_schema_version(connection) == len(steps)
    assert connection.execute("SELECT more FROM nodes").fetchall() == []
    assert connection.execute("SELECT count(*) FROM jobs").get == 1
    migrate(connection, migrations=steps, slots=1, now=NOW)
    connection.close()


async def test_migration_that_fails_leaves_the_last_whole_step(path: Path) -> None:
    await (await open_store(str(path))).close()
    number = len(load_migrations()) + 1
    broken = Migration(number, "broken", "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1);")
    connection = open_writing_connection(str(path))
    with pytest.raises(apsw.SQLError):
        migrate(connection, migrations=(*load_migrations(), broken), slots=1, now=NOW)
    assert read_schema_version(connection) == number - 1
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").get == 0
    connection.close()
