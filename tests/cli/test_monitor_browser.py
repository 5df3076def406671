"""The page of the monitor in a browser: no errors, names for everybody, no markup of strangers.

Runs where `playwright` and Debian's Chromium are installed; Playwright promises to work with builds
of its own only, and downloads nothing here. With AERON_ASYNC_SCREENSHOTS=1 the pictures of
`docs/howto/monitor.md` are made anew, and the frames a second of a busy page are printed.
"""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

pytest.importorskip("starlette", reason="pip install 'aeron-async[web]'")
pytest.importorskip("uvicorn", reason="pip install 'aeron-async[web]'")
pytest.importorskip("playwright", reason="pip install playwright")

from playwright.async_api import async_playwright

from aeron_async.cli.monitor.views import SourcePlace, state_of
from aeron_async.cli.top_model import TopModel
from aeron_async.stats import LossStats, ReceiverStats, Stats
from tests.cli.monitors import MadeUp, monitor_of
from tests.cli.pictures import packed
from tests.cli.top_worlds import (
    DRIVER,
    IMAGE,
    PUBLICATION,
    SECOND_NS,
    driver,
    healthy,
    image,
    publication,
    slow_reader,
    small_buffer,
    stats,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

CHROMIUM: Final = Path("/usr/bin/chromium")
IMAGES: Final = Path(__file__).parents[2] / "docs/images"
PICTURE_MAX: Final = 150_000
FLAGS: Final = ["--no-sandbox"]
WANTS_PICTURES: Final = os.environ.get("AERON_ASYNC_SCREENSHOTS") == "1"
HOSTILE: Final = (
    "aeron:udp?alias=<img src=x onerror=alert(1)>\x1b[31m\u202e'\"`</td><script>x</script>"
)
COUNT_FRAMES: Final = """() => new Promise((done) => {
  let count = 0;
  const begin = performance.now();
  const frame = (now) => {
    count += 1;
    if (now - begin < 5000) requestAnimationFrame(frame);
    else done((count * 1000) / (now - begin));
  };
  requestAnimationFrame(frame);
})"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not CHROMIUM.exists(), reason=f"there is no {CHROMIUM}: apt-get install chromium"
    ),
]


@asynccontextmanager
async def page_of(
    *sources: Any, path: str = "", interval: float = 0.1, **options: Any
) -> AsyncGenerator[Any]:
    """Open a page; at its end nothing has been said in its console."""
    said: list[str] = []
    async with (
        monitor_of(*sources, interval=interval) as monitor,
        async_playwright() as p,
    ):
        browser = await p.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        context = await browser.new_context(**options)
        page = await context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda each: said.append(f"{each.type}: {each.text}"))
        page.on("pageerror", lambda each: said.append(f"error: {each}"))
        page.on("dialog", lambda each: said.append(f"dialog: {each.message}"))
        await page.goto(f"http://127.0.0.1:{monitor.port}/{path}")
        try:
            yield page
        finally:
            await browser.close()
    assert said == []


async def told(page: Any) -> None:
    """Wait until the page of a driver has been told something, and has shown it."""
    for _ in range(3):
        async with page.expect_response("**/api/driver*"):
            pass


async def test_the_list_has_names_for_everybody() -> None:
    async with page_of(MadeUp(small_buffer)) as page:
        await page.locator("tr.bad").wait_for()
        tree = await page.locator("body").aria_snapshot()
        for said in (
            '- heading "Aeron monitor" [level=1]',
            '- navigation "Pages"',
            '- region "Drivers"',
            '- region "Driver box:42"',
            "1 of 3 streams in trouble",
            "Show only rows with these words",
            '- columnheader "Trouble" [sort=descending]' if "[sort" in tree else "columnheader",
            '- columnheader "Cause and remedy"',
            '- rowheader "image 1001, session -7',
            '- link "image 1001, session -7"',
        ):
            assert said in tree, tree
        table = page.locator("table")
        assert "3 streams" in await table.locator("caption").inner_text()
        assert await table.locator("th:not([scope])").count() == 0
        # Whoever sees no colour reads the word beside a shape.
        cells = await table.locator("td.status").all_inner_texts()
        assert cells[0] == "▲ socket_drop"
        assert {each[0] for each in cells} == {"▲", "●"}


async def test_keys_lead_through_the_list_and_to_a_stream() -> None:
    async with page_of(MadeUp(small_buffer)) as page:
        first = page.locator("tbody tr:first-child a")
        await page.locator("tbody tr.bad").wait_for()
        assert await page.locator('tbody a[tabindex="0"]').count() == 1
        await first.focus()
        for key, row in (
            ("ArrowDown", 2),
            ("End", 3),
            ("ArrowUp", 2),
            ("Home", 1),
            ("PageDown", 3),
        ):
            await page.keyboard.press(key)
            focused = page.locator(f"tbody tr:nth-child({row}) a")
            assert await focused.evaluate("(each) => each === document.activeElement")
        await page.keyboard.press("Home")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="image 1001, session -7").wait_for()
        # The first key of a new page leads to what is on it.
        assert await page.evaluate("document.activeElement.id") == "main"


async def test_the_first_key_leads_past_the_menu() -> None:
    async with page_of(MadeUp(healthy)) as page:
        await page.locator("tbody tr").first.wait_for()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
        assert await page.locator("tbody tr").count() == 2


async def test_a_list_can_be_sorted_and_filtered() -> None:
    async with page_of(MadeUp(small_buffer)) as page:
        await page.locator("tbody tr.bad").wait_for()
        await page.get_by_role("button", name="Stream").click()
        names = await page.locator("tbody th a").all_inner_texts()
        assert [each.split()[1].strip(",") for each in names] == ["11", "12", "1001"]
        await page.get_by_label("Show only rows with these words").fill("IMAGE 12,")
        await page.locator("tbody tr:nth-child(2)").wait_for(state="detached")
        assert await page.locator("tbody th a").all_inner_texts() == ["image 12, session -7"]


async def test_a_stream_shows_its_hour_and_its_losses() -> None:
    async with page_of(MadeUp(small_buffer), path="#/stream/0-img-2") as page:
        plot = page.get_by_role("img", name="Loss by cause over the last hour")
        await plot.wait_for()
        label = await plot.get_attribute("aria-label")
        assert "socket_drop: now 1.2 MB/s, highest 1.2 MB/s" in label
        assert await page.get_by_role("img", name="Rate over the last hour").count() == 1
        for caption in (
            "Losses since it joined, by cause",
            "When it lost what, the newest first",
            "Subscriptions that read it",
            "The plots in figures",
        ):
            assert await page.get_by_role("table", name=caption).count() == 1
        assert "raise so-rcvbuf" in await page.locator(".causes").inner_text()


async def test_receivers_topology_driver_and_events_are_shown() -> None:
    source = MadeUp(slow_reader)
    async with page_of(source, path="#/stream/0-pub-1") as page:
        receivers = page.get_by_role("table", name="Who receives it")
        await receivers.get_by_text("10.0.0.2:4000").wait_for()
        await page.get_by_role("link", name="Topology").click()
        picture = page.get_by_role("group", name="Publishers, streams and subscribers")
        await picture.get_by_text("▲ sender_limit").first.wait_for()
        assert await picture.get_by_role("link", name="Driver box:42").count() > 0
        await page.get_by_role("link", name="box:42").first.click()
        await page.get_by_role("table", name="Bounded resources").wait_for()
        assert await page.get_by_label("image logs bytes used").count() == 1
        source.error = ConnectionError("it has gone")
        await page.get_by_text("It does not answer: it has gone").wait_for()
        source.error = None
        await page.get_by_role("link", name="Events").click()
        await page.get_by_text("it answers again").wait_for()


async def test_words_of_strangers_are_text_and_nothing_else() -> None:
    def hostile(at: float) -> Stats:
        receivers = (ReceiverStats("receiver", HOSTILE, HOSTILE, 0, 1, 1, 5),)
        lost = (LossStats("gap", int(at * 2), 5), LossStats(HOSTILE, int(at * 2), 9))
        return stats(
            at,
            [publication(at, channel=HOSTILE, state=HOSTILE, receivers=receivers)],
            [image(at, channel=HOSTILE, source=HOSTILE, losses=lost)],
            driver=driver(version=HOSTILE, limits={HOSTILE: int(at)}, counters={HOSTILE: 1}),
        )

    source = MadeUp(hostile, name=f"/run/{HOSTILE}")
    async with page_of(source) as page:
        await page.get_by_text("onerror=alert(1)").first.wait_for()
        for path in ("stream/0-pub-1", "stream/0-img-2", "driver/0", "topology", "events", ""):
            await page.evaluate(f"location.hash = '#/{path}'")
            await page.locator("main h2").first.wait_for()
            assert await page.locator("img, td script, iframe, [onerror]").count() == 0
            text = await page.locator("body").inner_text()
            assert "\x1b" not in text
            assert "\u202e" not in text
        source.error = OSError(HOSTILE)
        await page.get_by_text("It does not answer: aeron:udp?alias=<img src=x").wait_for()
        assert await page.locator("img[src], [onerror]").count() == 0


async def test_what_has_not_changed_is_not_made_anew_and_a_silent_driver_has_no_new_rates() -> None:
    """Whoever reads or has focused something keeps it, whenever the page is told something."""
    source, other = MadeUp(healthy), MadeUp(healthy, name="/run/other", pid=43)
    async with page_of(source, other) as page:
        await page.locator("tbody tr").first.wait_for()
        source.error = ConnectionError("it has gone")
        await page.get_by_text("It does not answer: it has gone").wait_for()
        stale = page.locator("tbody tr", has_text="box:42").first.locator("polyline")
        alive = page.locator("tbody tr", has_text="box:43").first.locator("polyline")
        before, moving = await stale.get_attribute("points"), await alive.get_attribute("points")
        await page.wait_for_function(
            "([each, was]) => each.getAttribute('points') !== was",
            arg=[await alive.element_handle(), moving],
        )
        assert await stale.get_attribute("points") == before
        # The page of the driver that does not answer stays as it is, though the other one goes on.
        await page.evaluate("location.hash = '#/driver/0'")
        summary = page.get_by_text("All counters")
        await summary.focus()
        node = await summary.element_handle()
        await told(page)
        assert await node.evaluate("(each) => each.isConnected && each === document.activeElement")
        # Of the one that goes on only its parts are made anew, and what had the focus has it.
        await page.evaluate("location.hash = '#/driver/1'")
        await summary.focus()
        await told(page)
        assert await summary.evaluate("(each) => each === document.activeElement")


@pytest.mark.parametrize("path", ["", "#/stream/0-img-2", "#/topology", "#/driver/0", "#/events"])
async def test_a_page_of_320_pixels_does_not_scroll_sideways(path: str) -> None:
    size = {"width": 320, "height": 700}
    async with page_of(
        MadeUp(small_buffer), path=path, viewport=size, reduced_motion="reduce"
    ) as page:
        await page.locator("main h2").first.wait_for()
        await page.locator(".driver.here").wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320
        if path == "":
            # Where the last column has no room, the row says why, and what to do.
            assert "raise so-rcvbuf" in await page.locator("tr.bad .brief").inner_text()


async def test_a_monitor_that_ends_is_said_to_be_gone() -> None:
    source = MadeUp(healthy)
    said: list[str] = []
    async with async_playwright() as p:
        browser = await p.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        page = await browser.new_page()
        page.on("pageerror", lambda each: said.append(str(each)))
        async with monitor_of(source) as monitor:
            await page.goto(f"http://127.0.0.1:{monitor.port}/")
            await page.locator("tbody tr").first.wait_for()
        await page.get_by_text("No connection to the monitor").first.wait_for()
        await browser.close()
    assert said == []


async def test_cards_of_drivers_that_another_monitor_does_not_know_go_away() -> None:
    model = TopModel()
    places = {name: SourcePlace(at, "box", name) for at, name in enumerate(("/a", "/b"))}
    states = []
    for name in ("/b", "/a"):
        model.on_stats(healthy(1), name)
        states.append(json.dumps(state_of(model.scene(), places, 0)))

    async def tell(route: Any) -> None:
        # Two drivers at first; who comes back hears of one.
        body = f"retry: 10\nevent: state\ndata: {states.pop() if states[1:] else states[0]}\n\n"
        await route.fulfill(body=body, content_type="text/event-stream")

    async with page_of(MadeUp(healthy)) as page:
        await page.route("**/events", tell)
        await page.reload()
        await page.locator(".driver .path", has_text="/a").wait_for()
        await page.locator(".driver .path", has_text="/a").wait_for(state="detached")
        assert await page.locator(".driver .path").all_inner_texts() == ["/b"]


# Pictures and figures, by hand.


def feed(at: float) -> Stats:
    """Return a driver that publishes market data, one stream of which has a slow reader."""
    slow = ReceiverStats("receiver", "5f1c", "10.1.0.9:40456", int(at * 400_000), 0, 4, 118_000)
    good = ReceiverStats("receiver", "7aa2", "10.1.0.7:40456", int(at * 400_000), 131_072, 3, 0)
    rows = [
        publication(
            at * 0.4,
            registration_id=1,
            stream_id=1001,
            receivers=(slow, good),
            blocked_by="sender_limit",
            blocked_sender_limit_ns=int(at * 0.62 * SECOND_NS),
            channel="aeron:udp?endpoint=239.1.1.1:20121|alias=trades",
        ),
        publication(
            at * 2.2,
            registration_id=2,
            stream_id=1002,
            session_id=311,
            channel="aeron:udp?endpoint=239.1.1.1:20122|alias=quotes",
        ),
    ]
    made = attrs.evolve(
        DRIVER,
        version="0.1.0",
        counters={"bytes_sent": int(at * 2_700_000), "bytes_received": int(at * 9_000)},
    )
    return stats(at, rows, driver=made)


def lake(at: float) -> Stats:
    """Return a driver that records the data, and whose socket is too small."""
    lost = (
        LossStats("socket_drop", int(at * 30), int(at * 310_000)),
        LossStats("gap", int(at * 0.3), int(at * 400)),
    )
    rows = [
        image(
            at * 2.2,
            registration_id=2,
            stream_id=1002,
            session_id=311,
            losses=lost,
            source="10.1.0.3:40456",
            nak_count=int(at * 30),
            channel="aeron:udp?endpoint=239.1.1.1:20122|alias=quotes",
        ),
        image(
            at * 0.4,
            registration_id=1,
            stream_id=1001,
            source="10.1.0.3:40456",
            channel="aeron:udp?endpoint=239.1.1.1:20121|alias=trades",
        ),
    ]
    full = attrs.evolve(DRIVER.sockets[0], drop_count=int(at * 40), queued_bytes=212_000)
    made = attrs.evolve(
        DRIVER,
        version="0.1.0",
        sockets=(full,),
        counters={"bytes_sent": int(at * 9_000), "bytes_received": int(at * 2_600_000)},
    )
    return stats(at, [], rows, driver=made)


@pytest.mark.skipif(not WANTS_PICTURES, reason="AERON_ASYNC_SCREENSHOTS=1 makes the pictures anew")
@pytest.mark.parametrize(
    ("name", "path", "width", "height", "scheme"),
    [
        ("monitor-light", "", 1280, 800, "light"),
        ("monitor-stream", "#/stream/1-img-2", 1280, 800, "light"),
        ("monitor-topology", "#/topology", 1280, 800, "light"),
        ("monitor-dark", "", 390, 844, "dark"),
    ],
)
async def test_pictures_of_the_page(
    name: str, path: str, width: int, height: int, scheme: str
) -> None:
    sources = MadeUp(feed, "/run/feed/door", 4711), MadeUp(lake, "/run/lake/door", 4801)
    async with page_of(
        *sources, path=path, viewport={"width": width, "height": height}, color_scheme=scheme
    ) as page:
        await page.locator(".driver.here").wait_for()
        if "stream" in path:
            await page.get_by_role("img").first.wait_for()
        # Lines of some length make a better picture.
        await page.wait_for_timeout(3_000)
        IMAGES.mkdir(exist_ok=True)
        (IMAGES / f"{name}.png").write_bytes(packed(await page.screenshot()))
    assert (IMAGES / f"{name}.png").stat().st_size < PICTURE_MAX


@pytest.mark.skipif(not WANTS_PICTURES, reason="AERON_ASYNC_SCREENSHOTS=1 prints the figures")
async def test_frames_of_a_busy_page(capsys: pytest.CaptureFixture[str]) -> None:
    def busy(at: float) -> Stats:
        rows = [
            attrs.evolve(publication(at * (1 + each % 7 + at % 3)), registration_id=each)
            for each in range(100)
        ]
        images = [
            attrs.evolve(image(at * (1 + each % 5 + at % 2)), registration_id=each)
            for each in range(100)
        ]
        return stats(at, rows, images)

    assert (PUBLICATION.registration_id, IMAGE.registration_id) == (1, 2)
    async with page_of(MadeUp(busy), interval=0.5, bypass_csp=True) as page:
        await page.locator("tbody tr:nth-child(200)").wait_for(state="attached")
        frames = await page.evaluate(COUNT_FRAMES)
    with capsys.disabled():
        print(f"\n{frames:.1f} frames a second with 200 streams and 2 updates a second")  # noqa: T201 - the figure that was asked for


def test_pictures_are_small() -> None:
    pictures = sorted(IMAGES.glob("monitor-*.png"))
    assert [each.name for each in pictures if each.stat().st_size >= PICTURE_MAX] == []
