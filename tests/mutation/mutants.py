"""Change one node of the code at a time, and see whether the tests that cover it notice.

    python tests/mutation/mutants.py --count 100 [--only 'kvcap/kernels/keys.py'] [--seed 0]

Works in copies of the checkout. Kernels run as plain Python (``NUMBA_DISABLE_JIT``), so that nothing is
compiled anew. Tests that a change makes endless are stopped, and counted apart.
"""

from __future__ import annotations

import argparse
import ast
import copy
import fnmatch
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
TIMEOUT_SECONDS = 180

KERNEL = "tests/kernels/test_{}.py"
SCAN = ("tests/kernels/test_reuse_runs.py",)
QUERIES = (
    "tests/queries/test_named_queries.py",
    "tests/queries/test_null_times.py",
    "tests/queries/test_queries_under_rules.py",
    "tests/queries/test_query_macros.py",
    "tests/replay/test_policies.py",
)
COVERED_BY = {
    **{
        f"kvcap/kernels/{name}.py": (KERNEL.format(name),)
        for name in ("block_lru", "fifo", "id_table", "lru", "node_lru", "optimal")
    },
    **{
        f"kvcap/kernels/{name}.py": SCAN
        for name in ("fenwick", "node_index", "prefix_tree", "reuse_runs", "run_scan", "tree_state")
    },
    "kvcap/kernels/curve.py": ("tests/kernels/test_curve.py",),
    "kvcap/kernels/engine_rules.py": (KERNEL.format("engine_rules"), KERNEL.format("keys")),
    "kvcap/kernels/keys.py": ("tests/kernels/test_keys.py", "tests/blocks/test_blocks.py"),
    "kvcap/kernels/request_log.py": (KERNEL.format("request_log"),),
    "kvcap/kernels/ring.py": (KERNEL.format("fifo"), KERNEL.format("block_lru")),
    "kvcap/kernels/run_tables.py": ("tests/replay/test_replay.py", "tests/kernels/test_curve.py"),
    "kvcap/kernels/segments.py": (KERNEL.format("segments"), KERNEL.format("node_lru")),
    "kvcap/formats/detect.py": ("tests/formats/test_detect.py", "tests/formats/test_dialects.py"),
    "kvcap/formats/sglang.py": ("tests/formats/test_dialects.py",),
    "kvcap/models/kinds/uniform.py": (
        "tests/models/test_draft_layers.py",
        "tests/models/test_model_terms.py",
    ),
    "kvcap/analysis/figures.py": ("tests/analysis/test_plan.py", "tests/analysis/test_check_and_diff.py"),
    "sql/*.sql": QUERIES,
}
"""What notices a change, by pattern of the file's path."""

_PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn))
_OTHER_COMPARISON = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
_OTHER_OPERATOR = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitXor: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_SQL_WORDS = "< <= > >= = <> + - AND OR min max least greatest ASC DESC floor ceil"
_SQL_PAIRS = _SQL_WORDS.split(" ")
_OTHER_SQL = {
    **dict(zip(_SQL_PAIRS[::2], _SQL_PAIRS[1::2], strict=True)),
    **dict(zip(_SQL_PAIRS[1::2], _SQL_PAIRS[::2], strict=True)),
    "*": "+",
    "/": "*",
    "//": "*",
    "sum": "max",
}
_SQL_TOKEN = re.compile(
    r"(?P<skip>--[^\n]*|'[^']*'|\"[^\"]*\"|count\(\*\)|->|:=|::)"
    r"|(?P<token><=|>=|<>|//|[<>=+*/-]|\b(?:AND|OR|min|max|sum|least|greatest|ASC|DESC|floor|ceil)\b|\b\d+\b)"
)


@dataclass(frozen=True)
class Mutant:
    """One change: where, what stood there and what stands there now, and the whole changed file."""

    path: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"


def mutants_of(path: str) -> Iterator[Mutant]:
    """Yield every change of a file."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".sql"):
        yield from _sql_mutants(path, source)
        return
    tree = ast.parse(source)
    for index, node in enumerate(ast.walk(tree)):
        for changed in _changes(node):
            other = copy.deepcopy(tree)
            place = next(found for at, found in enumerate(ast.walk(other)) if at == index)
            before = ast.unparse(node)
            place.__dict__.update(changed)
            yield Mutant(path, node.lineno, before, ast.unparse(place), ast.unparse(other))


def _changes(node: ast.AST) -> Iterator[dict[str, object]]:
    """Yield fields of a node that make another one of it."""
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            ops = [*node.ops[:at], _OTHER_COMPARISON[type(operator)](), *node.ops[at + 1 :]]
            yield {"ops": ops}
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OTHER_OPERATOR:
        yield {"op": _OTHER_OPERATOR[type(node.op)]()}
    elif isinstance(node, ast.BoolOp):
        yield {"op": ast.Or() if isinstance(node.op, ast.And) else ast.And()}
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield {"value": node.value + 1}
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield {"value": not node.value}
    elif isinstance(node, ast.If | ast.While) and ast.unparse(node.test) != "TYPE_CHECKING":
        yield {"test": ast.UnaryOp(ast.Not(), node.test)}
    elif isinstance(node, ast.IfExp):
        yield {"body": node.orelse, "orelse": node.body}


def _sql_mutants(path: str, source: str) -> Iterator[Mutant]:
    for match in _SQL_TOKEN.finditer(source):
        token = match["token"]
        if token is None:
            continue
        other = str(int(token) + 1) if token.isdecimal() else _OTHER_SQL.get(token)
        if other is not None:
            changed = source[: match.start()] + other + source[match.end() :]
            line = source.count("\n", 0, match.start()) + 1
            yield Mutant(path, line, token, other, changed)


class Copies:
    """Copies of the checkout in which mutants are tried, one at a time each."""

    def __init__(self, directory: Path, count: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            target = directory / str(number)
            for part in ("kvcap", "sql", "tests", "sample_traces", "pipelines"):
                shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("mutation"))
            for name in ("pyproject.toml", "README.md", "LICENSE"):
                shutil.copy2(ROOT / name, target / name)
            self._free.put(target)

    def outcome(self, mutant: Mutant) -> str:
        """Return ``noticed``, ``survives`` or ``stopped``."""
        directory = self._free.get()
        path = directory / mutant.path
        original = path.read_bytes()
        stat = path.stat()
        try:
            path.write_text(mutant.source, encoding="utf-8")
            return run_tests(directory, tests_of(mutant.path), plain=mutant.path.startswith("kvcap/kernels"))
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            self._free.put(directory)


def run_tests(directory: Path, tests: Sequence[str], *, plain: bool) -> str:
    """Return what becomes of tests there, with kernels as plain Python or compiled."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("KVCAP_SHARED", None)
    if plain:
        environment["NUMBA_DISABLE_JIT"] = "1"
        command += ["-W", "ignore:overflow encountered:RuntimeWarning"]
    try:
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "stopped"
    return "noticed" if done.returncode else "survives"


def tests_of(path: str) -> tuple[str, ...]:
    """Return the tests that cover a file."""
    return next(tests for pattern, tests in COVERED_BY.items() if fnmatch.fnmatch(path, pattern))


def sample(count: int, only: str, seed: int) -> list[Mutant]:
    """Return so many changes of the covered files, those that are known to change nothing left out."""
    known = set(EQUIVALENT.read_text(encoding="utf-8").splitlines()) if EQUIVALENT.exists() else set()
    paths = sorted(
        str(path.relative_to(ROOT))
        for pattern in COVERED_BY
        for path in ROOT.glob(pattern)
        if fnmatch.fnmatch(str(path.relative_to(ROOT)), only)
    )
    found = [mutant for path in paths for mutant in mutants_of(path) if name_of(mutant) not in known]
    return random.Random(seed).sample(found, min(count, len(found)))


def name_of(mutant: Mutant) -> str:
    """Return a change without its line, which moves."""
    return f"{mutant.path}: {mutant.before} -> {mutant.after}"


def tried(mutants: Sequence[Mutant], workers: int) -> dict[str, list[Mutant]]:
    """Return the changes by what became of them."""
    found: dict[str, list[Mutant]] = {"noticed": [], "survives": [], "stopped": []}
    with tempfile.TemporaryDirectory(prefix="kvcap-mutants-") as directory:
        copies = Copies(Path(directory), workers)
        with ThreadPoolExecutor(workers) as pool:
            for mutant, outcome in zip(mutants, pool.map(copies.outcome, mutants), strict=True):
                found[outcome].append(mutant)
    return found


def report(found: dict[str, list[Mutant]]) -> str:
    """Return what was not noticed, line by line, and the counts."""
    lines = [f"{name}: {mutant}" for name in ("survives", "stopped") for mutant in found[name]]
    return "\n".join([*lines, ", ".join(f"{len(mutants)} {name}" for name, mutants in found.items())])


def main() -> int:
    """Try a sample, print who survives and the share that was noticed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", default="*", help="pattern of the paths to change")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    print(report(tried(sample(args.count, args.only, args.seed), args.workers)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
