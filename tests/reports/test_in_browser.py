"""The report in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread

from batchjobs.reports.evidence import gather
from batchjobs.reports.page import render
from batchjobs.reports.source import open_source
from batchjobs.spec import parse_job
from batchjobs.storage.store import open_store
from tests.conftest import run_here, text_table
from tests.reports.samples import full_summary

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")

LIGHT, DARK = 1, 0  # Blink's numbers of what a page is told that the reader prefers
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every figure."""
    folder = tmp_path_factory.mktemp("report")
    pq.write_table(text_table(10), folder / "a.parquet")
    job = {
        "name": "seen", "input": {"path": str(folder / "a.parquet")}, "prompt": {"column": "text"},
        "sampling": {"max_tokens": 100}, "engine": {"kind": "echo"}, "output": {"path": str(folder / "out")},
    }  # fmt: skip
    run_here(parse_job(job))
    source = open_source(open_store(str(folder / "out")))
    file = folder / "report.html"
    file.write_text(render(full_summary(), source.plan, gather(source.parts), source.spec))
    return file


def chromium(page: str | Path, folder: Path, *options: str) -> str:
    """Open the page in a browser with a profile of its own; what it prints."""
    url = page if isinstance(page, str) else page.as_uri()
    command = [str(CHROMIUM), *QUIET, f"--user-data-dir={folder / 'profile'}", *options, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def pixels(page: Path, folder: Path, scheme: int, width: int) -> np.ndarray:
    """A screenshot: height x width x 3, each 0..1."""
    file = folder / f"{scheme}-{width}.png"
    options = (f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={width},900", f"--screenshot={file}")
    chromium(page, folder, *options)
    return imread(file)[:, :, :3]


def test_the_browser_finds_every_section_and_every_picture(page: Path, tmp_path: Path) -> None:
    dom = chromium(page, tmp_path, "--dump-dom")
    sections = re.findall(r'<section id="(\w+)"', dom)
    assert sections == [
        "acceptance", "accounting", "time", "lengths", "latency", "errors", "health", "attempts", "comparison",
        "settings",
    ]  # fmt: skip
    pictures = re.findall(r"<svg.*?</svg>", dom, re.DOTALL)
    assert len(pictures) == 6
    assert all('role="img"' in picture and "<title" in picture and "<desc" in picture for picture in pictures)
    assert all("<path" in picture and "<text" in picture for picture in pictures)
    ids = re.findall(r' id="([^"]+)"', dom)
    assert len(ids) == len(set(ids)), "several pictures in one page must not share ids"
    named = set(re.findall(r'(?:xlink:href="|url\()#([\w.-]+)', dom))
    assert named <= set(ids)


@pytest.fixture
def served(page: Path) -> Iterator[tuple[str, set[str]]]:
    """The page from a server, with two things in it that want to be loaded; and what the server was asked for."""
    asked: set[str] = set()

    class Counting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.add(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Counting)
    url = f"http://127.0.0.1:{server.server_port}"
    wanting = f'<img src="{url}/image.png"><script>fetch("{url}/script")</script></main>'
    content = page.read_text().replace("</main>", wanting).encode()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"{url}/report", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_nothing_is_loaded_even_if_something_in_the_page_wanted_it(
    page: Path, served: tuple[str, set[str]], tmp_path: Path
) -> None:
    assert not re.findall(r'(?:src|href)="(?!#)', page.read_text())
    url, asked = served
    chromium(url, tmp_path, "--dump-dom")
    assert asked - {"/favicon.ico"} == {"/report"}


@pytest.mark.parametrize(("scheme", "width"), [(LIGHT, 1280), (DARK, 700)])
def test_it_is_drawn_light_and_dark_as_the_reader_prefers(page: Path, tmp_path: Path, scheme: int, width: int) -> None:
    shot = pixels(page, tmp_path, scheme, width)
    assert (shot[5, 5].min() > 0.95) if scheme == LIGHT else (shot[5, 5].max() < 0.15)
    assert shot.std() > 0.05, "not blank"
    assert (shot[:, -8:] == shot[5, -1]).all(), "nothing reaches beyond the right edge"
