"""What was answered is kept: one writer, crashes at any moment, disks that are full for a while."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from asgi import ask
from live_service import go, options, post, running

from kvcap.errors import SchemaError, UsageError
from kvcap.online.server import keeper as keeper_module
from kvcap.online.server import recorder
from kvcap.online.server.journal import Journal
from kvcap.online.server.service import Service
from kvcap.replay import replay


def logged(directory: Path) -> list[list[int]]:
    """Token ids of all requests of a log, in order."""
    return [
        ids
        for path in sorted(directory.glob("requests-*"))
        for ids in pq.read_table(path)["token_ids"].to_pylist()
    ]


def test_a_directory_has_one_writer_and_says_which(tmp_path: Path) -> None:
    async def test() -> None:
        chosen = options(record=str(tmp_path))
        async with running(chosen):
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            with pytest.raises(UsageError, match=rf"written by another kvcap serve \({holder}\)"):
                Service(chosen)
        async with running(chosen):
            pass

    go(test)


def test_what_is_in_the_directory_after_a_stop_replays(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(options(record=str(tmp_path))) as (app, _):
            for number in range(5):
                await post(app, "/v1/requests", {"token_ids": [number % 2] * 8})

    go(test)
    with replay(str(tmp_path)) as results:
        assert results.run.requests == 5


def test_what_a_durable_service_answered_outlives_a_crash(tmp_path: Path) -> None:
    chosen = options(record=str(tmp_path), durable="true")
    sent = [[number] * 8 for number in range(30)]

    async def first() -> None:
        service = Service(chosen)
        async with running(service=service) as (app, _):
            answers = await asyncio.gather(*(post(app, "/v1/requests", {"token_ids": ids}) for ids in sent))
            assert {answer.status for answer in answers} == {200}
            assert logged(tmp_path) == []
            shutil.copytree(tmp_path, tmp_path.with_name("crashed"))

    async def second() -> None:
        async with running(options(record=str(tmp_path.with_name("crashed")))) as (app, service):
            assert (service.restored, service.from_log) == (30, 30)
            await post(app, "/v1/requests", {"token_ids": [99] * 8})

    go(first)
    go(second)
    kept = logged(tmp_path.with_name("crashed"))
    assert sorted(kept) == sorted([*sent, [99] * 8])
    assert not list(tmp_path.with_name("crashed").glob(".requests-*"))


@pytest.mark.parametrize("cut", [1, 5, 40, 4000])
def test_a_journal_that_a_crash_cut_off_keeps_what_is_whole(tmp_path: Path, cut: int) -> None:
    chosen = options(record=str(tmp_path / "log"), durable="true")

    async def test() -> None:
        async with running(chosen) as (app, _):
            for number in range(6):
                await post(app, "/v1/requests", {"token_ids": [number] * 4})
            shutil.copytree(tmp_path / "log", tmp_path / "cut")

    go(test)
    journal = next((tmp_path / "cut").glob("*.journal"))
    journal.write_bytes(journal.read_bytes()[:-cut])
    log = recorder.RequestLog(str(tmp_path / "cut"), 4)
    log.close()
    kept = logged(tmp_path / "cut")
    assert kept == [[number] * 4 for number in range(len(kept))]
    assert len(kept) == (5 if cut <= 40 else max(0, len(kept)))
    assert len(kept) < 6


def test_a_file_whose_journal_a_crash_left_is_not_written_again(tmp_path: Path) -> None:
    async def test() -> None:
        chosen = options(record=str(tmp_path / "log"), durable="true")
        async with running(chosen) as (app, _):
            await post(app, "/v1/requests", {"token_ids": [1] * 4})
            (journal,) = (tmp_path / "log").glob("*.journal")
            left = journal.read_bytes()
        journal.write_bytes(left)
        async with running(chosen) as (_, service):
            assert service.restored == 1
        assert logged(tmp_path / "log") == [[1] * 4]

    go(test)


@pytest.mark.parametrize("durable", ["true", "false"])
def test_a_full_disk_is_answered_503_and_forgotten_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: str
) -> None:
    monkeypatch.setattr(keeper_module, "_RETRY_S", 0.0)
    full = [False]

    def no_room_for(function: Any) -> Any:
        def write(*arguments: Any) -> Any:
            if full[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*arguments)

        return write

    monkeypatch.setattr(recorder, "_write", no_room_for(recorder._write))
    monkeypatch.setattr(Journal, "append", no_room_for(Journal.append))

    async def test() -> None:
        chosen = options(record=str(tmp_path), record_seconds="0.001", durable=durable)
        acknowledged: list[int] = []
        async with running(chosen) as (app, service):
            for number in range(60):
                full[0] = 10 <= number < 30
                answer = await post(app, "/v1/requests", {"token_ids": [number] * 4})
                if answer.status == 200:
                    acknowledged.append(number)
                else:
                    assert answer.status == 503
                    assert "No space left" in answer.json()["error"]["message"]
                    health = await ask(app, "GET", "/health")
                    assert health.status == 503 or not full[0]
                await asyncio.sleep(0.002)
                await service._keep_up()
        kept = [ids[0] for ids in logged(tmp_path)]
        assert set(acknowledged) <= set(kept)
        assert len(kept) == len(set(kept))
        assert len(acknowledged) < 60
        assert acknowledged[-1] == 59

    go(test)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("requests-000000000000000-other.parquet", b"", "move it elsewhere"),
        ("requests-000000000000000.parquet", b"no parquet", "move it elsewhere"),
        ("requests-mine.parquet", b"", "move it elsewhere"),
    ],
)
def test_a_file_that_is_none_of_the_log_is_one_clear_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SchemaError, match=message) as found:
        Service(options(record=str(tmp_path)))
    assert name in str(found.value)


def test_the_same_requests_from_two_services_are_refused(tmp_path: Path) -> None:
    async def test(chosen: Any) -> None:
        async with running(chosen) as (app, _):
            for _ in range(3):
                await post(app, "/v1/requests", {"token_ids": [1] * 4})

    for name in ("a", "b"):
        asyncio.run(test(options(record=str(tmp_path / name))))
    for path in (tmp_path / "b").glob("requests-*"):
        shutil.copy(path, tmp_path / "a")
    (tmp_path / "a" / ".estimator.state").unlink()
    with pytest.raises(SchemaError, match="requests from 3 on"):
        Service(options(record=str(tmp_path / "a")))
