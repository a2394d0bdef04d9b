"""Makes the pictures of docs/: a real run with bad samples, its report, and Chromium's view of it, light and dark.

    python tools/pictures.py            writes docs/pictures/report-light.png and report-dark.png

Takes half a minute. The run is real, so the pictures differ a little each time; look at them before you commit them.

Runs in: a process of its own; the dataset in its workers.
"""

from __future__ import annotations

import ctypes
import io
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src")]

from holdfast import DataLoader, report  # noqa: E402
from holdfast.records import reader  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1200, 2010

SAMPLES = 2600
STEP_BYTES = 180 << 10
BROKEN_EVERY, CRASHES, HANGS, EXITS, TOO_LARGE = 433, (400, 1301), 900, 2000, 1700


class Photos(Dataset[torch.Tensor]):
    """Keeps a little of every sample; a few raise, crash, hang, exit, or want more memory than they may have."""

    def __init__(self) -> None:
        self.kept: list[bytearray] = []

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.02 + 0.01 * random.random() + (0.35 if index % 511 == 77 else 0.0))
        self.kept.append(bytearray(os.urandom(1) * STEP_BYTES))
        if index % BROKEN_EVERY == 55:
            raise ValueError(f"photo {index} is not a JPEG file: starts with b'<html>'")
        if index in CRASHES:
            ctypes.string_at(0)
        if index == HANGS:
            time.sleep(3600)
        if index == EXITS:
            os._exit(3)
        if index == TOO_LARGE:
            torch.ones(1 << 30)
        return torch.zeros(3, 64, 64)


def run() -> None:
    """One epoch, of about 25 seconds."""
    loader = DataLoader(Photos(), 16, num_workers=4, on_error="skip", sample_timeout=1.5, memory_limit="600MB")
    with loader:
        for _ in loader:
            time.sleep(0.05)


def take(page_url: str, scheme: str) -> bytes:
    """A picture of the page's top."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(page_url)
        taken = page.screenshot()
        browser.close()
    return bytes(taken)


def smaller(picture: bytes) -> bytes:
    """In 256 colours: a page of text and flat charts has hardly more."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(
        256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    ).save(out, "PNG", optimize=True)
    return out.getvalue()


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOLDFAST_HOME"] = home
        run()
        page = report.write(next(reader.all_runs()))
        for scheme in ("light", "dark"):
            path = PICTURES / f"report-{scheme}.png"
            path.write_bytes(smaller(take(page.as_uri(), scheme)))
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
