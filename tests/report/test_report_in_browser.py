"""The report in headless Chromium: a quiet console, nothing fetched, readable in every width and mode."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kvcap.cli import main

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium"),
]

WIDTHS = (390, 768, 1280)
SMALLEST_TEXT_PX = 9.5
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--window-size=1400,3000",
]

MEASURE = """
const measured = [];
for (const frame of document.querySelectorAll("iframe")) {
  const page = frame.contentDocument, view = frame.contentWindow;
  const isShown = (one) => one.getBoundingClientRect().width > 0;
  const images = [...page.querySelectorAll("figure svg")].filter(isShown);
  const texts = [], overlaps = [], outside = [];
  for (const svg of images) {
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const words = [...svg.querySelectorAll("text")];
    const boxes = words.map(word => word.getBoundingClientRect());
    boxes.forEach((a, i) => {
      texts.push(scale * parseFloat(view.getComputedStyle(words[i]).fontSize));
      if (a.left < box.left - 3 || a.right > box.right + 3) outside.push(words[i].textContent);
      boxes.slice(i + 1).forEach((b, j) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 5) overlaps.push([words[i].textContent, words[i + 1 + j].textContent]);
      });
    });
  }
  const strip = [...page.querySelectorAll(".hover")].find(isShown);
  const at = strip.getBoundingClientRect();
  const where = {bubbles: true, clientX: at.x + 1, clientY: at.y + 1};
  strip.dispatchEvent(new view.PointerEvent("pointermove", where));
  const tip = page.getElementById("tip");
  measured.push({
    width: frame.clientWidth,
    scrollWidth: page.documentElement.scrollWidth,
    figures: page.querySelectorAll("figure").length,
    images: images.length,
    flattest: Math.min(...images.map(svg => svg.getBoundingClientRect().height)),
    smallestText: Math.min(...texts), overlaps, outside,
    fetched: view.performance.getEntriesByType("resource").map(entry => entry.name),
    tip: tip.hidden ? null : tip.textContent,
    background: view.getComputedStyle(page.body).backgroundColor,
    ink: view.getComputedStyle(page.querySelector(".lead")).color,
  });
}
const out = document.createElement("pre");
out.id = "measured";
out.textContent = JSON.stringify(measured);
document.body.append(out);
"""


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    log = Path(__file__).parents[2] / "sample_traces" / "agent.hash_ids.jsonl.gz"
    replay = [
        "replay",
        str(log),
        "--kv-bytes-per-token",
        "163840",
        "--out",
        str(folder / "results"),
        "--quiet",
    ]
    assert main([*replay, "-o", str(folder / "answer.txt")]) == 0
    tiers = ["--tier", "hbm=100GiB", "--tier", "dram=1TiB:4.5", "--tier", "ssd=4TiB:0.3"]
    costs = ["--prefill-tokens-per-second", "9000", "--gpu-hour", "2.5"]
    page = folder / "report.html"
    assert main(["report", str(folder / "results"), *tiers, *costs, "-o", str(page)]) == 0
    return page


def measured(report: Path, folder: Path, *flags: str) -> tuple[list[dict], list[str]]:
    """What the page looks like at each width, and what the console said."""
    assert BROWSER is not None
    source = html.escape(report.read_text(encoding="utf-8"), quote=True)
    frames = "".join(
        f'<iframe srcdoc="{source}" style="width:{width}px;height:2000px;border:0"></iframe>'
        for width in WIDTHS
    )
    wrapper = folder / "frames.html"
    wrapper.write_text(
        f"<!doctype html><meta charset=utf-8>{frames}"
        f"<script>addEventListener('load', () => {{{MEASURE}}})</script>",
        encoding="utf-8",
    )
    command = [
        BROWSER,
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        *flags,
        "--dump-dom",
        wrapper.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found[1])), console


def luminance(colour: str) -> float:
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_readable_at_every_width_with_a_quiet_console(report_file: Path, tmp_path: Path) -> None:
    frames, console = measured(report_file, tmp_path)
    assert console == []
    assert [frame["width"] for frame in frames] == list(WIDTHS)
    for frame in frames:
        assert frame["scrollWidth"] <= frame["width"], frame["width"]
        assert frame["images"] == frame["figures"] >= 8
        assert frame["flattest"] > 60
        assert frame["smallestText"] >= SMALLEST_TEXT_PX
        assert frame["overlaps"] == []
        assert frame["outside"] == []
        assert frame["fetched"] == []
        assert "LRU: " in frame["tip"]


def test_dark_where_the_reader_prefers_it(report_file: Path, tmp_path: Path) -> None:
    light, _ = measured(report_file, tmp_path, "--blink-settings=preferredColorScheme=1")
    dark, console = measured(report_file, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert console == []
    assert luminance(light[0]["background"]) > 230 > 30 > luminance(light[0]["ink"])
    assert luminance(dark[0]["background"]) < 30 < 230 < luminance(dark[0]["ink"])
    assert [frame["overlaps"] for frame in dark] == [[]] * len(WIDTHS)
