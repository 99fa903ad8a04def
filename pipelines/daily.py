"""Replay each day's logs into ROOT/day=YYYY-MM-DD, then report on the last day and check its limits.

    python pipelines/daily.py --logs 'logs/%Y-%m-%d/*.jsonl.gz' --root results \
        --replay '--model glm-5.2 --pool tenant' --report '--tier hbm=640GiB' --check '--max-p99 2TiB'

A day whose logs and options have not changed is left as it is, a changed one is replayed again, and a
run that dies leaves no half day: the next one goes on where it stopped. Each day starts with an empty
cache. ``kvcap sql ROOT`` reads all days as one.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import kvcap
from kvcap.cli import main as run_kvcap
from kvcap.writing import recovered, written_beside

INPUTS_FILE = "inputs.json"
REPORT_FILE = "report.html"
LOCK_FILE = ".lock"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parsed = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parsed.add_argument(
        "--logs", required=True, metavar="PATTERN", help="glob of a day's logs, with strftime's %%Y, %%m, %%d"
    )
    parsed.add_argument(
        "--root", required=True, metavar="DIR", help="where results gather, a directory a day"
    )
    parsed.add_argument(
        "--day", type=date.fromisoformat, metavar="YYYY-MM-DD", help="the last day (default: yesterday, UTC)"
    )
    parsed.add_argument(
        "--since", type=date.fromisoformat, metavar="YYYY-MM-DD", help="the first day (default: the last)"
    )
    for command in ("replay", "report", "check"):
        parsed.add_argument(
            f"--{command}",
            type=shlex.split,
            default=[],
            metavar="OPTIONS",
            help=f"options of `kvcap {command}`, as one argument",
        )
    return parsed


def main(argv: Sequence[str] | None = None) -> int:
    """Bring the days up to date; return 1 when one fails, or the last has no logs or breaks a limit."""
    args = parser().parse_args(argv)
    last = args.day or datetime.now(timezone.utc).date() - timedelta(days=1)
    first = args.since or last
    root = Path(args.root)
    root.mkdir(parents=True, exist_ok=True)
    with only_run(root) as is_alone:
        if not is_alone:
            print(f"daily: error: another run is at work in {root}", file=sys.stderr)
            return 1
        days = [first + timedelta(days=offset) for offset in range((last - first).days + 1)]
        done = [is_brought_up_to_date(day, root, args) for day in days]
        if not all(done):
            return 1
        return conclude(day_directory(last, root), args)


@contextmanager
def only_run(root: Path) -> Iterator[bool]:
    """Hold the root's lock, if nobody else does, and clear away what a run that died has left."""
    with (root / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        for left in root.glob(".day=*.old"):
            # Put back first: it is the only whole version of its day, if the day has none.
            recovered(root / left.name.removeprefix(".").split(".")[0])
        for left in root.glob(".day=*"):
            shutil.rmtree(left)
        yield True


def is_brought_up_to_date(day: date, root: Path, args: argparse.Namespace) -> bool:
    """Replay a day, unless that was done from the same logs with the same options; False when it fails."""
    logs = logs_of(day, args.logs)
    directory = day_directory(day, root)
    if not logs:
        print(f"{day}: no logs at {day.strftime(args.logs)}")
        return True
    inputs = fingerprint(logs, args.replay)
    noted = directory / INPUTS_FILE
    if noted.is_file() and noted.read_text(encoding="utf-8") == inputs:
        print(f"{day}: up to date")
        return True
    print(f"{day}: {len(logs)} files", flush=True)
    where = ["--out", str(directory), "--force", "--quiet"]
    if run_kvcap(["replay", *map(str, logs), *args.replay, *where]) != 0:
        return False
    # Last of all: results without it are replayed again.
    with written_beside(noted, force=True) as beside:
        beside.write_text(inputs, encoding="utf-8")
    return True


def logs_of(day: date, pattern: str) -> list[Path]:
    """Return a day's logs, by name."""
    whole = Path(day.strftime(pattern)).absolute()
    return sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))))


def fingerprint(logs: Sequence[Path], options: Sequence[str]) -> str:
    """Return what the results of a day follow from: names, sizes and times of its logs, and options."""
    stats = {str(path): path.stat() for path in logs}
    files = {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}
    return json.dumps({"kvcap": kvcap.__version__, "options": options, "logs": files}, indent=2) + "\n"


def conclude(directory: Path, args: argparse.Namespace) -> int:
    """Write the report of a day, and hold it against the limits."""
    if not (directory / INPUTS_FILE).is_file():
        return 1
    report = directory.parent / REPORT_FILE
    day = directory.name.removeprefix("day=")
    code = run_kvcap(["report", str(directory), "--title", day, *args.report, "-o", str(report), "--force"])
    if code == 0 and args.check:
        code = run_kvcap(["check", str(directory), *args.check])
    return code


def day_directory(day: date, root: Path) -> Path:
    """Return where the results of a day are."""
    return root / f"day={day.isoformat()}"


if __name__ == "__main__":
    sys.exit(main())
