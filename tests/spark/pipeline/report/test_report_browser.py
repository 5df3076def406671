"""The report in a browser: without network and scripts, narrow, dark and on paper.

Runs where `playwright` and Debian's Chromium are installed. With AERON_ASYNC_SCREENSHOTS=1 the
pictures of `docs/howto/pipeline.md` are made anew.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

pytest.importorskip("playwright", reason="pip install playwright")

from playwright.async_api import async_playwright

from aeron_async.spark.lake.tables import Lake
from aeron_async.spark.pipeline.report import render_report
from tests.cli.pictures import packed
from tests.spark.pipeline.report.lakes import DAY_S, write_day

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

CHROMIUM: Final = Path("/usr/bin/chromium")
IMAGES: Final = Path(__file__).parents[4] / "docs/images"
PICTURE_MAX: Final = 150_000
WANTS_PICTURES: Final = os.environ.get("AERON_ASYNC_SCREENSHOTS") == "1"
PLOTS: Final = (
    "msg/s over time",
    "B/s over time",
    "gaps over time",
    "messages in quarantine over time",
    "latency by percentile",
    "quotes: market_ns to sent_ns over time",
    "lag of the lake over time",
    "messages by length",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason=f"there is no {CHROMIUM}: apt-get install chromium"
    ),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exchange")
    lake = Lake(folder / "lake")
    write_day(lake)
    path = folder / "report.html"
    page = render_report(lake, (DAY_S + 100_000) * 1_000).page
    path.write_text(page.replace(str(lake.root), "/var/lake"))
    return path


@asynccontextmanager
async def page_of(report: Path, **options: Any) -> AsyncGenerator[Any]:
    """Open the page; at its end it has asked for nothing but itself."""
    asked: list[str] = []
    given = {"offline": True, "java_script_enabled": False} | options
    async with async_playwright() as p:
        browser = await p.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = await (await browser.new_context(**given)).new_page()
        page.set_default_timeout(30_000)
        page.on("request", lambda each: asked.append(each.url))
        await page.goto(report.as_uri())
        try:
            yield page
        finally:
            await browser.close()
    assert asked == [report.as_uri()]


async def test_every_plot_and_table_has_a_name(report: Path) -> None:
    async with page_of(report) as page:
        for name in PLOTS:
            assert await page.get_by_role("img", name=name, exact=True).count() == 1
        drawn, tables = page.locator("svg"), page.locator("table")
        assert await drawn.count() == await page.locator("svg[role=img][aria-label]").count()
        named = page.locator("table:has(caption), details:has(summary) table, #streams ~ * table")
        assert await named.count() == await tables.count()
        assert await page.get_by_role("navigation", name="Summary").get_by_role("link").count() == 9
        assert await page.get_by_role("heading", level=1).count() == 1
        # The table of gaps opens without a script.
        cells = page.get_by_role("cell", name="201,326,592")
        before = await cells.count()
        await page.get_by_text("All 114 gaps, in order of time").click()
        assert await cells.count() == before + 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_page_of_320_pixels_does_not_scroll_sideways(report: Path, scheme: str) -> None:
    size = {"width": 320, "height": 700}
    options = {"viewport": size, "color_scheme": scheme, "java_script_enabled": True}
    async with page_of(report, **options) as page:
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 20, 27)"}[scheme]


async def test_paper_is_light_and_shows_what_is_folded(report: Path) -> None:
    async with page_of(report, color_scheme="dark", java_script_enabled=True) as page:
        folded = page.locator("#gaps ~ details")
        before = (await folded.bounding_box())["height"]
        await page.emulate_media(media="print")
        assert (await folded.bounding_box())["height"] > 20 * before
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(255, 255, 255)"


@pytest.mark.skipif(not WANTS_PICTURES, reason="AERON_ASYNC_SCREENSHOTS=1 makes pictures")
async def test_pictures(report: Path) -> None:
    for name, section, size, scheme in (
        ("light", "", {"width": 1040, "height": 1290}, "light"),
        ("dark", "#latency", {"width": 1040, "height": 820}, "dark"),
    ):
        options = {"viewport": size, "color_scheme": scheme, "java_script_enabled": True}
        async with page_of(report, **options) as page:
            if section:
                await page.locator(section).evaluate("each => each.scrollIntoView()")
            picture = packed(await page.screenshot())
            assert len(picture) < PICTURE_MAX
            (IMAGES / f"report-{name}.png").write_bytes(picture)
