"""Run ``kvcap serve`` as a process of its own, and talk to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LISTENING = re.compile(r"listening on (http://\S+)")


@dataclass
class ServiceProcess:
    url: str
    process: subprocess.Popen[str]
    greeting: str

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Return status and body, as JSON where it is that; with a body it is a POST."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {} if data is None else {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data, {**sent, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, _content(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _content(error)

    def terminate(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=60)


def _content(answer: Any) -> Any:
    raw = answer.read()
    return json.loads(raw) if "json" in answer.headers.get("content-type", "") else raw


@contextmanager
def serving(*flags: str, environment: dict[str, str] | None = None) -> Iterator[ServiceProcess]:
    """Yield a running service on a free port; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kvcap", "serve", "--port", "0", *flags],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )
    try:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            found = LISTENING.search(line)
            if found:
                yield ServiceProcess(found[1], process, line)
                break
        else:
            raise AssertionError(f"the service did not start: {''.join(seen)}")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
