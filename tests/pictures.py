"""Take the README's pictures of a report: `python tests/pictures.py reports/RUN/index.html docs`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SIZES = {"report.png": (1280, 1500), "report-narrow.png": (390, 1500)}


def take(page_file: Path, folder: Path) -> None:
    """Write the top of the page at each of SIZES into `folder`."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (width, height) in SIZES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
            page.goto(page_file.resolve().as_uri())
            page.screenshot(path=folder / name)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
