"""Make the pictures in docs/ again: the app in a browser, and the paths of one recommendation.

    loger demo && python benchmarks/pictures.py loger-demo/bundle

It needs Chromium and its driver: apt-get install chromium chromium-driver.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn

from loger.web.app import create_app
from loger.web.config import ServeConfig

DOCS = Path(__file__).parents[1] / "docs"
FLAGS = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
    "disable-background-networking", "disable-component-update", "hide-scrollbars", "lang=en",
)  # fmt: skip
USER = "Vera Fargate"
DESK, PHONE = (1360, 1000, False), (390, 844, True)


@contextmanager
def served(bundle: str) -> Iterator[str]:
    """The address of a server of the bundle."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        app = create_app(ServeConfig(bundle))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{own.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a screen."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory() as folder:
        for flag in (*FLAGS, f"user-data-dir={folder}"):
            options.add_argument(f"--{flag}")
        driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


def opened(driver: Any, url: str, width: int, height: int, phone: bool, dark: bool) -> None:
    """Show a page, once it is complete."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get("about:blank")
    driver.get(url)
    while not driver.execute_script("return document.body.dataset.ready"):
        time.sleep(0.1)
    time.sleep(0.5)  # for what moves to come to rest


def photograph(driver: Any, file: Path) -> None:
    """What the browser shows as a PNG file."""
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {})
    file.write_bytes(base64.b64decode(shot["data"]))


def path_picture(driver: Any) -> str:
    """The picture of the reasons that the page shows, as a file of its own."""
    script = """
    const drawn = document.querySelector('.picture svg').cloneNode(true);
    const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
    const own = rules.filter((rule) => /^\\.(picture|type-)/.test(rule.selectorText ?? ''));
    const roots = rules.flatMap((rule) => rule.selectorText === ':root' ? [rule.cssText]
      : rule.media && /dark/.test(rule.media.mediaText) ? [rule.cssText] : []);
    drawn.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
    drawn.setAttribute('aria-label', 'Paths from a user to a recommended item');
    const css = [...roots, ...own.map((rule) => rule.cssText)].join('\\n');
    const style = document.createElementNS('http://www.w3.org/2000/svg', 'style');
    style.textContent = css.replaceAll('.picture ', '');
    drawn.prepend(style);
    return drawn.outerHTML;
    """
    return str(driver.execute_script(script))


def main() -> None:
    """Write docs/pictures/app-*.png and docs/path.svg."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", help="the demo's, loger-demo/bundle")
    bundle = parser.parse_args().bundle
    with served(bundle) as address, browser() as driver:
        page = f"{address}/#{urlencode({'user': USER})}"
        opened(driver, page, *DESK, dark=False)
        photograph(driver, DOCS / "pictures" / "app-light.png")
        (DOCS / "path.svg").write_text(path_picture(driver) + "\n", encoding="utf-8")
        opened(driver, f"{page}&view=items", *DESK, dark=False)
        time.sleep(1)  # until the lists are there
        photograph(driver, DOCS / "pictures" / "app-item.png")
        opened(driver, page, *PHONE, dark=True)
        driver.execute_script("document.querySelector('.reasons').scrollIntoView()")
        photograph(driver, DOCS / "pictures" / "app-dark-phone.png")


if __name__ == "__main__":
    main()
