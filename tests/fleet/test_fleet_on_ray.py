"""``pipelines/fleet.py`` on Ray: several workers, one of which is killed in the middle."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fleet_logs import assert_same_results, write_fleet

import kvcap
from kvcap.errors import RecordError
from kvcap.fleet import FleetJob, fleet_files

pytestmark = [
    pytest.mark.service,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ray = pytest.importorskip("ray")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fleet() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fleet_pipeline", ROOT / "pipelines" / "fleet.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(
        num_cpus=3,
        object_store_memory=200 << 20,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}},
    )
    # Workers cannot import what stands in tests.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    ray.shutdown()


def job(**reading: Any) -> FleetJob:
    options = {"pool": "instance", "sort_by_time": True, "keep": ("tier",), **reading}
    return FleetJob(kvcap.ReadOptions(**options), kvcap.ReplayOptions.of(block_size=4))


@pytest.mark.parametrize("kind", ["hash_ids", "token_ids"])
def test_workers_give_the_results_of_one_process(fleet: ModuleType, kind: str, tmp_path: Path) -> None:
    logs = write_fleet(tmp_path / "logs", kind)
    with fleet.run_fleet(job(), [str(logs)], str(tmp_path / "results")) as found:
        assert_same_results(found, job(), logs)


def test_the_order_in_which_files_are_named_makes_no_difference_to_hits(
    fleet: ModuleType, tmp_path: Path
) -> None:
    logs = write_fleet(tmp_path / "logs")
    names = random.Random(1).sample(fleet_files([str(logs)]), 5)
    with (
        fleet.run_fleet(job(), names, str(tmp_path / "results")) as found,
        kvcap.replay(names, job().options, reading=job().reading) as expected,
    ):
        assert found.table("requests").equals(expected.table("requests"))
        assert found.table("curve").equals(expected.table("curve"))


def die_once(marker: Path) -> None:
    """Kill this process the first time that any process gets here."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("stage", ["read_file", "replay_pool"])
def test_a_worker_that_is_killed_changes_nothing(
    fleet: ModuleType, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = write_fleet(tmp_path / "logs")
    marker = tmp_path / "killed"
    read_file, replay_pool = fleet.read_file, fleet.replay_pool

    def dying_read(fleet_job: FleetJob, name: str) -> Iterator[Any]:
        for number, item in enumerate(read_file(fleet_job, name)):
            yield item
            if number == 1:
                die_once(marker)

    def dying_replay(*args: Any) -> Any:
        result = replay_pool(*args)
        die_once(marker)
        return result

    monkeypatch.setattr(fleet, stage, dying_read if stage == "read_file" else dying_replay)
    with fleet.run_fleet(job(), [str(logs)], str(tmp_path / "results")) as found:
        assert marker.exists()
        assert_same_results(found, job(), logs)


def test_a_bad_file_fails_with_its_name(fleet: ModuleType, tmp_path: Path) -> None:
    logs = write_fleet(tmp_path / "logs", requests=60)
    (logs / "part-2.jsonl").write_text("broken\n")
    with pytest.raises(RecordError, match=r"part-2\.jsonl:1") as caught:
        fleet.run_fleet(job(), [str(logs)], str(tmp_path / "results"))
    assert caught.value.line == 1
    assert not (tmp_path / "results").exists()


def test_the_script_prints_the_answer_and_errors_in_one_line(
    fleet: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet, "_connect", lambda address: None)
    logs = write_fleet(tmp_path / "logs", requests=60)
    argv = [str(logs), "--pool", "instance", "--out", str(tmp_path / "results"), "--capacities", "50blocks"]
    assert fleet.main(argv) == 0
    assert "Each instance on its own" in capsys.readouterr().out
    assert fleet.main(argv) == 2
    assert capsys.readouterr().err.startswith("fleet: error: ")
