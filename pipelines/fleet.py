"""Replay the logs of a fleet on a Ray cluster: ``python pipelines/fleet.py LOGS... --out RESULTS``.

One Ray task reads each file, one replays each pool; Ray schedules them, moves what they return, and repeats
those that died. The results directory is that of ``kvcap replay`` on one machine. FLEET.md, beside this file,
says how to set a cluster up and what a day of a large fleet needs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvcap.cli.options import (
    add_capacities,
    add_force,
    add_model_options,
    add_reading_options,
    add_replay_options,
    add_tokenizer_options,
    read_options,
    replay_options,
    tokenize_options,
)
from kvcap.errors import KvcapError, MissingExtraError
from kvcap.fleet import FileHead, FleetJob, FleetResults, fleet_files, plan_pools, read_file, replay_pool

if TYPE_CHECKING:
    from kvcap.queries import Results


def run_fleet(job: FleetJob, paths: Sequence[str], out: str, *, force: bool = False) -> Results:
    """Replay every file below ``paths`` on the Ray cluster that this process is connected to.

    Parameters
    ----------
    job
        How.
    paths
        Files, directories, globs or URLs that every worker can read.
    out
        Results directory to write, on this machine.
    force
        Replace an existing ``out``.

    Raises
    ------
    KvcapError
        What reading or replaying raised, as it was raised.
    """
    import ray

    try:
        return _run(job, fleet_files(paths), out, force=force)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, (KvcapError, OSError)):
            raise error.cause from None
        raise


def _run(job: FleetJob, files: Sequence[str], out: str, *, force: bool) -> Results:
    import ray

    read, replay = ray.remote(read_file), ray.remote(replay_pool)
    # Ray runs a task per core.
    job_ref = ray.put(replace(job, reading=replace(job.reading, threads=job.reading.threads or 1)))
    parts = [list(generator) for generator in [read.remote(job_ref, name) for name in files]]
    heads: list[FileHead] = ray.get([part[0] for part in parts])
    plan = plan_pools(job, heads)
    facts_ref = ray.put(plan.facts)
    with FleetResults(job, heads, plan, out, force=force) as results:
        pending: list[Any] = [
            replay.remote(job_ref, facts_ref, pool, *(parts[file][1 + piece] for file, piece in pool.pieces))
            for pool in plan.pools
        ]
        del parts
        while pending:
            done, pending = ray.wait(pending)
            results.add(ray.get(done[0]))
        return results.commit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Replay the logs of a fleet on a Ray cluster.")
    parser.add_argument("logs", nargs="+", metavar="LOGS", help="files, directories, globs or URLs")
    parser.add_argument("--out", required=True, metavar="DIR", help="results directory to write")
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="of the cluster (default: one on this machine)"
    )
    parser.add_argument(
        "--pool-path", choices=["file", "directory"], help="name pools after where logs stand"
    )
    add_reading_options(parser)
    add_replay_options(parser)
    add_model_options(parser)
    add_tokenizer_options(parser)
    add_capacities(parser)
    add_force(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run on a cluster and print the answer."""
    args = _parser().parse_args(argv)
    try:
        has_tokenizer = args.tokenizer is not None or args.engine_url is not None
        job = FleetJob(
            reading=read_options(args),
            options=replay_options(args),
            tokenizing=tokenize_options(args) if has_tokenizer else None,
            pool_path=args.pool_path,
        )
        _connect(args.address)
        with run_fleet(job, args.logs, args.out, force=args.force) as results:
            _print(results, args.capacities)
    except (KvcapError, OSError) as error:
        print(f"fleet: error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0


def _connect(address: str | None) -> None:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("a fleet", "ray") from error
    ray.init(address=address, log_to_driver=False)


def _print(results: Results, capacities: str | None) -> None:
    from kvcap.analysis import answer
    from kvcap.cli.answer_layout import ANSWER
    from kvcap.cli.writer import write

    write(ANSWER, answer(results, capacities), "table", sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
