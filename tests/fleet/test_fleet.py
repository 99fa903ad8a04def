"""A replay in parts equals the replay in one piece."""

from __future__ import annotations

import pickle
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from fleet_logs import assert_same_results, write_fleet

import kvcap
from kvcap import errors
from kvcap.errors import RecordError, SchemaError, TraceError, UsageError
from kvcap.fleet import FleetJob, FleetResults, fleet_files, plan_pools, read_file, replay_pool


def carried(value: Any) -> Any:
    """Take a value through a pickle, as an engine does."""
    return pickle.loads(pickle.dumps(value, protocol=5))


def run_in_parts(job: FleetJob, logs: Path, out: Path) -> kvcap.Results:
    parts = [[carried(item) for item in read_file(carried(job), name)] for name in fleet_files([str(logs)])]
    heads = [part[0] for part in parts]
    plan = carried(plan_pools(job, heads))
    pools = random.Random(3).sample(plan.pools, len(plan.pools))
    with FleetResults(job, heads, plan, out) as results:
        for pool in pools:
            pieces = [parts[file][1 + piece] for file, piece in pool.pieces]
            results.add(carried(replay_pool(job, plan.facts, pool, *pieces)))
        return results.commit()


def reading(**options: Any) -> kvcap.ReadOptions:
    return kvcap.ReadOptions(**{"pool": "instance", "sort_by_time": True, "keep": ("tier",), **options})


@pytest.mark.parametrize("kind", ["hash_ids", "token_ids", "names"])
@pytest.mark.parametrize("by_time", [True, False])
def test_tables_and_run_are_those_of_one_replay(kind: str, by_time: bool, tmp_path: Path) -> None:
    logs = write_fleet(tmp_path / "logs", kind)
    options = kvcap.ReplayOptions.of(
        block_size=4, kv_bytes_per_token=Fraction(100), warm_up=Fraction(1, 10), target=Fraction(9, 10)
    )
    job = FleetJob(reading(sort_by_time=by_time), options)
    with run_in_parts(job, logs, tmp_path / "results") as found:
        assert_same_results(found, job, logs)
        assert found.table_names == ("requests", "reuse_runs", "curve")
    with kvcap.open_results(tmp_path / "results") as opened:
        assert [pool.pool for pool in kvcap.answer(opened, "5blocks").pools] == ["big", "rare", "small"]


@pytest.mark.parametrize(
    "options",
    [
        {"touch_order": "head-first"},
        {"coarsen": 2},
        {"partial_block": "keep"},
        {"max_capacity": "40blocks"},
        {"compute_last_token": True},
        {"output_blocks": True, "partial_block": "drop"},
    ],
)
@pytest.mark.parametrize("kind", ["hash_ids", "token_ids"])
def test_every_definition_holds_in_parts_too(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    logs = write_fleet(tmp_path / "logs", kind, requests=120)
    job = FleetJob(reading(), kvcap.ReplayOptions.of(block_size=4, **options))
    with run_in_parts(job, logs, tmp_path / "results") as found:
        assert_same_results(found, job, logs)


def test_one_pool_spread_over_all_files_is_merged_by_time(tmp_path: Path) -> None:
    logs = write_fleet(tmp_path / "logs")
    job = FleetJob(reading(pool=None), kvcap.ReplayOptions.of(block_size=4))
    with run_in_parts(job, logs, tmp_path / "results") as found:
        assert_same_results(found, job, logs)
        assert found.run.pool_column is None


@pytest.mark.parametrize("by", ["file", "directory"])
def test_paths_can_name_the_pools(by: str, tmp_path: Path) -> None:
    logs = write_fleet(tmp_path / "logs", requests=60)
    (logs / "one").mkdir()
    (logs / "part-0.jsonl").rename(logs / "one" / "part-0.jsonl")
    job = FleetJob(reading(pool=None), kvcap.ReplayOptions.of(block_size=4), pool_path=by)
    with run_in_parts(job, logs, tmp_path / "results") as found:
        pools = [pool.pool for pool in kvcap.answer(found, "5blocks").pools]
        assert found.run.pool_column == by
    names = fleet_files([str(logs)])
    assert pools == sorted({name if by == "file" else str(Path(name).parent) for name in names})


def test_bad_records_are_counted_over_all_files(tmp_path: Path) -> None:
    logs = write_fleet(tmp_path / "logs", requests=60)
    for name in ("part-0.jsonl", "part-1.jsonl"):
        path = logs / name
        path.write_text(path.read_text() + "broken\n")
    options = kvcap.ReplayOptions.of(block_size=4)
    job = FleetJob(reading(skip_bad=2), options)
    with run_in_parts(job, logs, tmp_path / "results") as found:
        assert_same_results(found, job, logs)
        assert found.run.reading.bad_records == 2
    with pytest.raises(TraceError, match=r"hold 2 bad records, such as .*part-0.*, expected at most 1"):
        run_in_parts(FleetJob(reading(skip_bad=1), options), logs, tmp_path / "other")
    with pytest.raises(RecordError, match=r"part-0\.jsonl:\d+"):
        run_in_parts(FleetJob(reading(), options), logs, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_files_of_another_kind_are_refused_by_name(tmp_path: Path) -> None:
    logs = write_fleet(tmp_path / "logs", requests=60)
    (logs / "part-3.jsonl").write_text('{"token_ids": [1, 2], "timestamp": 1, "instance": "a", "tier": 1}\n')
    with pytest.raises(SchemaError, match=r"part-3\.jsonl: expected hash_ids with the columns of"):
        run_in_parts(FleetJob(reading(), kvcap.ReplayOptions.of(block_size=4)), logs, tmp_path / "results")


def test_logs_that_join_records_of_several_files_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"session_id": "a", "timestamp": 1, "input_length": 8, "output_length": 1, "hash_ids": [1, 2]}\n'
    )
    job = FleetJob(kvcap.ReadOptions(input_format="mooncake-sessions"), kvcap.ReplayOptions.of(block_size=4))
    with pytest.raises(UsageError, match="join records that may stand in different files"):
        list(read_file(job, str(log)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reading": kvcap.ReadOptions(max_requests=5)}, "no limit on requests"),
        ({"options": kvcap.ReplayOptions.of(policies=("fifo",))}, "plain LRU"),
        ({"reading": kvcap.ReadOptions(pool="a"), "pool_path": "file"}, "expected one of them"),
    ],
)
def test_options_of_one_process_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FleetJob(**options)
    with pytest.raises(UsageError, match="no standard input"):
        fleet_files(["-"])


@pytest.mark.parametrize(
    "error",
    [
        errors.UsageError("wrong"),
        errors.TraceError("a.jsonl", "is empty"),
        errors.RecordError("a.jsonl", 3, "hash_ids[0]", "is 1.5, expected an integer"),
        errors.SchemaError("a.parquet", "this", "that"),
        errors.QueryError("totals", "does not run"),
        errors.MissingExtraError("reading s3://", "object-stores"),
    ],
)
def test_errors_come_back_whole_from_another_process(error: errors.KvcapError) -> None:
    back = carried(error)
    assert (type(back), str(back), back.__dict__) == (type(error), str(error), error.__dict__)
