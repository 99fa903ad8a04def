"""Send requests to a running service at a steady rate, and print one line of JSON about its answers.

Open loop: requests leave when they are due, whatever became of those before, so that waiting is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

TYPES = {"arrow": "application/vnd.apache.arrow.stream", "json": "application/json"}


def bodies(form: str, tokens: int, count: int, per_body: int) -> list[bytes]:
    """Bodies of some requests each: half of a request is the beginning of an earlier one."""
    rng = np.random.default_rng(0)
    heads = [rng.integers(0, 150_000, tokens // 2) for _ in range(20)]
    made = []
    for number in range(count):
        requests = [
            np.concatenate([heads[(number + i) % 20], rng.integers(0, 150_000, tokens - tokens // 2)])
            for i in range(per_body)
        ]
        if form == "json":
            made.append(json.dumps([{"token_ids": ids.tolist()} for ids in requests]).encode())
            continue
        table = pa.table({"token_ids": pa.array(requests, pa.list_(pa.uint32()))})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        made.append(sink.getvalue().to_pybytes())
    return made


class Connection:
    """One keep-alive connection."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, head: bytes, body: bytes) -> int:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        writer.writelines([head, body])
        await writer.drain()
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        return int(answer.split(b" ", 2)[1])


async def run(args: argparse.Namespace) -> None:
    address = urlsplit(args.url)
    made = bodies(args.form, args.tokens, 400 // args.per_body, args.per_body)
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(args.connections):
        free.put_nowait(Connection(address.hostname or "", address.port or 80))
    waits: list[float] = []
    statuses: dict[int, int] = {}

    async def one(due: float, body: bytes) -> None:
        head = (
            f"POST /v1/requests HTTP/1.1\r\nhost: x\r\ncontent-type: {TYPES[args.form]}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode()
        connection = await free.get()
        status = await connection.post(head, body)
        free.put_nowait(connection)
        waits.append(time.perf_counter() - due)
        statuses[status] = statuses.get(status, 0) + 1

    begin = time.perf_counter()
    tasks = []
    for number in range(int(args.rate * args.seconds / args.per_body)):
        due = begin + number * args.per_body / args.rate
        if (ahead := due - time.perf_counter()) > 0:
            await asyncio.sleep(ahead)
        tasks.append(asyncio.create_task(one(due, random.choice(made))))
    await asyncio.gather(*tasks)
    took = time.perf_counter() - begin
    ordered = sorted(waits)
    result = {"rate": args.per_body * len(ordered) / took, "statuses": statuses}
    for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)):
        result[name] = 1000 * ordered[max(0, int(share * len(ordered) + 0.999999) - 1)]
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--form", choices=list(TYPES), default="arrow")
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--tokens", type=int, default=12_000)
    parser.add_argument("--per-body", type=int, default=1)
    parser.add_argument("--connections", type=int, default=32)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
