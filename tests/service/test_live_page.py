"""The live page in headless Chromium, cut off from every other host."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from service_process import serving

pytestmark = pytest.mark.service

FLAGS = ("--kv-bytes-per-token", "61505", "--capacities", "1GiB,8GiB,64GiB,512GiB", "--block-size", "4")


def rendered(url: str, folder: Path, *, screenshot: bool = False) -> str:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("needs Chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    # Nothing but the service can be reached: a page that asked another host for anything would show it.
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--virtual-time-budget=9000"]
    flags += [f"--screenshot={folder}/page.png", "--window-size=1200,900"] if screenshot else ["--dump-dom"]
    done = subprocess.run([program, *flags, url], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_draws_what_the_service_knows(tmp_path: Path) -> None:
    with serving(*FLAGS) as service:
        for number in range(30):
            service.ask("/v1/requests", {"token_ids": [number % 7] * 8 + list(range(number))})
        page = rendered(service.url, tmp_path)
        status = service.ask("/status")[1]
    assert "counts are exact up to 512 GiB" in page
    assert 'class="bad"' not in page
    assert page.count('class="series"') >= 2 + 5
    assert "<b>30</b>" in page
    for row in status["window"]["capacities"]:
        assert f"<td>{100 * row['block_hit_rate']:.2f} %</td>" in page


def test_the_page_asks_nobody_else() -> None:
    page = (Path(__file__).parents[2] / "kvcap/online/server/assets/live.html").read_text()
    assert "http://www.w3.org/2000/svg" in page
    assert page.count("http") == 1
