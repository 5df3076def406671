"""The page of the exchange in a browser: a live book, an order by form, an engine that is killed.

Runs where `playwright` and Debian's Chromium are installed, and takes half a minute. With
AERON_ASYNC_SCREENSHOTS=1 the pictures of `docs/explanation/exchange.md` are made anew.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

pytest.importorskip("fastapi", reason="pip install 'aeron-async[exchange]'")
pytest.importorskip("playwright", reason="pip install playwright")

from playwright.async_api import async_playwright

from tests.cli.pictures import packed
from tests.exchange.programs import running

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from tests.exchange.programs import Program

CHROMIUM: Final = Path("/usr/bin/chromium")
IMAGES: Final = Path(__file__).parents[2] / "docs/images"
PICTURE_MAX: Final = 150_000
WANTS_PICTURES: Final = os.environ.get("AERON_ASYNC_SCREENSHOTS") == "1"
WATCHED_MS: Final = 45_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason=f"there is no {CHROMIUM}: apt-get install chromium"
    ),
]


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with running(tmp_path_factory.mktemp("exchange")) as program:
        yield program


@asynccontextmanager
async def page_of(program: Program, **options: Any) -> AsyncGenerator[Any]:
    """Open the page; at its end nothing has been said in its console."""
    said: list[str] = []
    async with async_playwright() as p:
        browser = await p.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = await (await browser.new_context(**options)).new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda each: said.append(f"{each.type}: {each.text}"))
        page.on("pageerror", lambda each: said.append(f"error: {each}"))
        page.on("dialog", lambda each: said.append(f"dialog: {each.message}"))
        await page.goto(program.address)
        await page.locator("#bids tr:first-child", has_text="bid").wait_for()
        try:
            yield page
        finally:
            await browser.close()
    assert said == []


async def ordered(page: Any, *, side: str, price: str, quantity: str) -> str:
    """Send an order by the form, by keys only; return what is said of it."""
    before = await page.locator("#said").inner_text()
    await page.get_by_role("spinbutton", name="Price").focus()
    await page.get_by_role("spinbutton", name="Price").fill(price)
    await page.get_by_label("Quantity").fill(quantity)
    await page.get_by_label(side, exact=True).check()
    await page.get_by_label("Quantity").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_function(
        "(was) => /Order \\d+/.test(said.innerText) && said.innerText !== was", arg=before
    )
    text: str = await page.locator("#said").inner_text()
    return text


async def test_the_page_shows_a_live_book_with_names_for_everybody(exchange: Program) -> None:
    async with page_of(exchange) as page:
        await page.locator("#tape tr:first-child", has_text=re.compile("buy|sell")).wait_for()
        tree = await page.locator("body").aria_snapshot()
        for said in (
            '- heading "A small exchange" [level=1]',
            '- navigation "Symbols"',
            '- button "AERN" [pressed]',
            '- region "Book"',
            '- region "Order"',
            'img "Last prices of AERN: now ',
            '- radio "Buy" [checked]',
            '- spinbutton "Price"',
            '- button "Send the order"',
            '- link "Metrics of the gateway"',
        ):
            assert said in tree, tree
        # It goes on by itself.
        before = await page.locator("#bids").inner_text()
        await page.wait_for_function("(was) => bids.innerText !== was", arg=before)
        await page.wait_for_function("() => /agree up to command [1-9]/.test(state.innerText)")
        await page.get_by_role("button", name="BOLT").click()
        await page.get_by_role("img", name="Last prices of BOLT").wait_for()


async def test_an_order_by_form_is_acknowledged_and_cancelled(exchange: Program) -> None:
    async with page_of(exchange) as page:
        said = await ordered(page, side="Buy", price="50.25", quantity="7")
        assert re.fullmatch(r"Order \d+ resting: 0 filled, 7 left", said)
        way = await page.locator("#parts").inner_text()
        assert "Recorded in the log" in way
        assert re.search("Altogether\\s+[\\d.]+ (ms|\N{MICRO SIGN}s)", way)
        await page.get_by_role("button", name=re.compile("Cancel order .* buy 7 AERN")).click()
        await page.wait_for_function("() => /cancelled/.test(said.innerText)")
        assert await page.locator("#mine li").count() == 0
        await page.get_by_label("Market").check()
        assert await page.get_by_role("spinbutton", name="Price").is_disabled()
        await page.get_by_role("button", name="Send the order").click()
        await page.wait_for_function(
            "() => /Order \\d+ (filled|cancelled): \\d+ filled/.test(said.innerText)"
        )


async def test_the_page_survives_a_kill_of_the_engine(exchange: Program) -> None:
    async with page_of(exchange) as page:
        await ordered(page, side="Sell", price="999.75", quantity="11")
        exchange.kill("engine")
        # Sent while there is no engine: it is answered by the next one.
        said = await ordered(page, side="Sell", price="999.50", quantity="12")
        assert re.fullmatch(r"Order \d+ resting: 0 filled, 12 left", said)
        # What was acknowledged before is there, and can be cancelled.
        await page.get_by_role("button", name=re.compile("Cancel order .* sell 11 AERN")).click()
        await page.wait_for_function("() => /cancelled/.test(said.innerText)")
        await page.wait_for_function(
            "() => /the engine was lost (once|[0-9]+ times)/.test(state.innerText)"
        )


async def test_an_order_without_an_answer_is_sent_again_with_its_number(exchange: Program) -> None:
    sent: list[dict[str, Any]] = []

    def on_orders(browser: Any) -> None:
        gateway = browser.connect_to_server()

        def on_message(text: str) -> None:
            sent.append(json.loads(text))
            if len(sent) > 1:
                gateway.send(text)
                return
            number = sent[0]["client_order_id"]
            lost = {"type": "error", "client_order_id": number, "error": "lost", "again": True}
            browser.send(json.dumps(lost))

        browser.on_message(on_message)

    async with page_of(exchange) as page:
        await page.route_web_socket(re.compile("/ws/orders"), on_orders)
        await page.reload()
        await page.locator("#bids tr:first-child", has_text="bid").wait_for()
        said = await ordered(page, side="Buy", price="50.50", quantity="8")
        assert re.fullmatch(r"Order \d+ resting: 0 filled, 8 left", said)
        assert sent == [sent[0], sent[0]]
        assert await page.locator("#mine li").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_page_of_320_pixels_does_not_scroll_sideways(
    exchange: Program, scheme: str
) -> None:
    size = {"width": 320, "height": 700}
    async with page_of(exchange, viewport=size, color_scheme=scheme) as page:
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.skipif(not WANTS_PICTURES, reason="AERON_ASYNC_SCREENSHOTS=1 makes pictures")
async def test_pictures(exchange: Program) -> None:
    wide, narrow = {"width": 1180, "height": 640}, {"width": 390, "height": 800}
    for name, size, scheme in (("light", wide, "light"), ("dark", narrow, "dark")):
        async with page_of(exchange, viewport=size, color_scheme=scheme) as page:
            await page.wait_for_timeout(WATCHED_MS)
            await ordered(page, side="Buy", price="95.00", quantity="25")
            await page.evaluate("scrollTo(0, 0)")
            picture = packed(await page.screenshot())
            assert len(picture) < PICTURE_MAX
            (IMAGES / f"exchange-{name}.png").write_bytes(picture)
