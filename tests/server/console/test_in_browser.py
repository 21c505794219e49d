"""The console in a real chromium: drawn, read, worked by keyboard, in both languages and themes.

Run by `make test-console`, which writes the screenshots of docs/console.md. Needs Debian's
`chromium`, and a font with Chinese letters, such as `fonts-wqy-microhei`, for the screenshots.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from kvcq_client.pb.v1 import jobs_pb2, jobs_pb2_grpc, migration_pb2, migration_pb2_grpc
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console import PAGES
from server.console import samples as samples_module
from server.console.words import LANGUAGES
from tests.server.console.test_app import Users
from tests.server.services.test_migration import end_of
from tests.support.consoles import console_of
from tests.support.migrating import SEGMENT_BYTES, make_on_files
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.serving import Served

pytestmark = [pytest.mark.browser]

async_api = pytest.importorskip("playwright.async_api", reason="the browser extra is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("chromium is not installed: apt-get install chromium", allow_module_level=True)

SHOTS = os.environ.get("KVCQ_SCREENSHOTS")
SIZE = {"width": 1200, "height": 760}
WAIT_MS = 15_000
#: What is folded away is looked at as well.
OPEN_ALL = "for (const one of document.querySelectorAll('details')) one.open = true"
#: What stands out of the window, or of a box that cannot be scrolled, or not by keyboard.
CUT = """() => {
  const found = [], root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`page: ${root.scrollWidth}`);
  for (const one of document.querySelectorAll('main *:not(.hidden, input, .plot *)')) {
    const {overflowX, display} = getComputedStyle(one);
    if (one.scrollWidth <= one.clientWidth + 1 || display === 'inline') continue;
    if (overflowX === 'visible' && one.closest('.scroll, pre')) continue;
    const what = `${one.className || one.tagName}: ${one.scrollWidth} in ${one.clientWidth}`;
    if (overflowX !== 'auto') found.push(what);
    else if (innerWidth > 1000 && !one.matches('[tabindex]')) found.push(what);
    else if (!one.matches('[tabindex], :has(a, button)')) found.push(`${what}, no way by keyboard`);
  }
  return found;
}"""
#: Cells and words that are folded to a few letters a line, and columns that begin out of sight.
NARROW = """() => {
  const found = [];
  for (const cell of document.querySelectorAll('td, th')) {
    const words = cell.innerText.trim();
    if (!words || !cell.getClientRects().length) continue;
    const range = document.createRange(), size = parseFloat(getComputedStyle(cell).fontSize);
    range.selectNodeContents(cell);
    const tops = [...range.getClientRects()].filter(one => one.width).map(one => one.top | 0);
    const lines = new Set(tops).size;
    if (lines > 3 && words.length / lines < 3) found.push(`${words.slice(0, 20)}: ${lines} lines`);
    if (innerWidth > 1000 && cell.getBoundingClientRect().left > innerWidth - 2 * size)
      found.push(`${words.slice(0, 20)}: out of sight`);
  }
  return found;
}"""
#: As long as names may be, without a place to break a line.
LONG = {"topic": "t" * 127, "group": "g" * 120, "tag": "tag" * 30, "key": "key" * 40}
LIGHT = [f"%LMQ%device-{number}" for number in range(8)]


class Browser:
    """Contexts of one chromium, with all that it complained of."""

    def __init__(self, chromium: Any) -> None:  # noqa: ANN401 - the library may be missing
        self._chromium = chromium
        self.complaints: list[str] = []
        self.asked: list[str] = []

    @asynccontextmanager
    async def page(self, **options: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - as above
        """A page of its own, without cookies."""
        context = await self._chromium.new_context(**{"viewport": SIZE, "locale": "en", **options})
        context.set_default_timeout(WAIT_MS)
        page = await context.new_page()
        page.on("console", lambda one: self.complaints.append(f"{one.type}: {one.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))
        try:
            yield page
        finally:
            await context.close()


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_api.async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--force-color-profile=srgb"]
        )
        try:
            async_api.expect.set_options(timeout=WAIT_MS)
            yield Browser(chromium)
        finally:
            await chromium.close()


@pytest_asyncio.fixture
async def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A server with a console that may administer, and something on every page."""
    monkeypatch.setattr(samples_module, "SAMPLE_S", 0.25 if SHOTS else 0.05)
    make_on_files(tmp_path / "store")
    async with serving(
        tmp_path / "store",
        store={"segment_bytes": SEGMENT_BYTES},
        console_port=0,
        console_admin=True,
    ) as served:
        await _fill(served)
        yield served


async def _fill(served: Served) -> None:
    names = (
        "orders",
        "payments",
        "shipments",
        "%RETRY%billing",
        *(f"user-{n:03}" for n in range(70)),
    )
    wanted = [pb.CreateTopicRequest(name=name, queue_count=4) for name in names]
    await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=wanted))
    await _put(served, 40)
    positions = [pb.QueuePosition(topic="orders", queue_id=n, offset=2 * n) for n in range(4)]
    for group in ("audit", "billing", "search-index"):
        await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group=group, offsets=positions))
    migration = migration_pb2_grpc.MigrationServiceStub(served.channel)
    started = await migration.StartMigration(migration_pb2.StartMigrationRequest())
    await end_of(migration, started.job_id)
    verified = await migration.VerifyMigration(migration_pb2.VerifyMigrationRequest(key_every=1))
    await end_of(migration, verified.job_id)
    await migration.Cutover(migration_pb2.CutoverRequest())
    jobs = jobs_pb2_grpc.JobServiceStub(served.channel)
    job = await jobs.StartJob(jobs_pb2.StartJobRequest(compact=jobs_pb2.CompactJob(topic="orders")))
    async for _ in jobs.WatchJob(jobs_pb2.WatchJobRequest(job_id=job.job_id)):
        pass


async def _put(served: Served, count: int) -> None:
    messages = [
        pb.Message(
            topic="orders",
            queue_id=number % 4,
            body=f'{{"order": {number}, "items": {number % 7 + 1}, "currency": "EUR"}}'.encode(),
            tag=("created", "paid", "sent")[number % 3],
            keys=[f"order-{number}"],
            light_queues=[LIGHT[number % len(LIGHT)]],
            properties={} if number % 2 else {"traceparent": f"00-{number:032x}-01", "zone": "eu"},
        )
        for number in range(count)
    ]
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    await asyncio.to_thread(served.store.wait_visible)


def _origin(served: Served) -> str:
    return f"http://127.0.0.1:{served.server.sites.ports['console']}"


async def _message_id(served: Served) -> str:
    found = await served.messages.Pull(pb.PullRequest(topic="orders", queue_id=0, offset=2))
    return str(found.messages[0].message_id)


async def _paths(served: Served) -> dict[str, str]:
    """Every page by the name of its screenshot."""
    return {
        **{page.name: page.path for page in PAGES},
        "topic": "/topic?name=orders",
        "messages": "/messages?topic=orders&queue=1",
        "message": f"/message?id={await _message_id(served)}",
        "group": "/group?name=billing",
    }


async def _shoot(page: Any, name: str) -> None:  # noqa: ANN401 - as above
    """Keep what is seen, where screenshots are asked for; small enough for a repository."""
    if SHOTS is None:
        return
    from PIL import Image

    picture = Image.open(io.BytesIO(await page.screenshot()))
    path = Path(SHOTS, f"{name}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


async def test_every_page_in_both_languages_and_themes(filled: Served, browser: Browser) -> None:
    origin, paths = _origin(filled), await _paths(filled)
    for language, theme in (("en", "light"), ("zh", "dark")):
        async with browser.page(locale=language, color_scheme=theme) as page:
            for name, path in paths.items():
                answer = await page.goto(origin + path)
                assert answer.status == 200, path
                assert await page.locator("h1").count() == 1
                assert await page.locator("html").get_attribute("lang") == language
                if name != "overview":
                    await _shoot(page, f"{name}-{language}-{theme}")
    # A policy that something breaks is told there as well.
    assert browser.complaints == []
    assert {url for url in browser.asked if not url.startswith(origin)} == set()


async def test_the_charts_are_drawn_and_told(filled: Served, browser: Browser) -> None:
    async with browser.page() as page:
        await page.goto(_origin(filled) + "/")
        for turn in range(60 if SHOTS else 12):
            await _put(filled, 40 + 3 * abs(turn % 24 - 12))
            await filled.messages.Pull(pb.PullRequest(topic="orders", max_messages=50))
            await asyncio.sleep(0.1 if SHOTS else 0.02)
        await page.wait_for_function("document.querySelector('[data-drawn]')?.dataset.drawn > 5")
        assert await page.locator(".plot canvas").count() == 4
        told = await page.locator("[data-chart=messages] .plot").get_attribute("aria-label")
        assert told.startswith("Messages per second: put ")
        assert await page.locator("#contact").is_hidden()
        await page.reload()
        await page.wait_for_selector("[data-drawn]")
        await _shoot(page, "overview-en-light")
        await page.get_by_role("button", name="Dark").click()
        await page.wait_for_selector("[data-drawn]")
        await _shoot(page, "overview-en-dark")
        # The server ends: the page says so, and keeps what it has.
        await page.route("**/live", lambda route: route.abort())
        await page.wait_for_selector("#contact:not([hidden])")
        assert "The server does not respond" in await page.locator("#contact").inner_text()
        assert await page.locator(".plot canvas").count() == 4


async def test_nothing_stands_in_the_way_of_a_reader(filled: Served, browser: Browser) -> None:
    """Rules of axe-core: contrast, names, roles, order of headings."""
    from axe_playwright_python.base import AXE_FILE_PATH

    axe = Path(AXE_FILE_PATH).read_text(encoding="utf-8")
    found = []
    for language, theme in (("en", "light"), ("zh", "dark")):
        async with browser.page(locale=language, color_scheme=theme) as page:
            for path in (await _paths(filled)).values():
                await page.goto(_origin(filled) + path)
                await page.evaluate(
                    "document.querySelectorAll('details').forEach(d => d.open = true)"
                )
                await page.evaluate(axe)
                result = await page.evaluate("axe.run()")
                found += [
                    f"{path} {theme}: {one['id']}: {one['nodes'][0]['html']}"
                    for one in result["violations"]
                ]
    assert "\n".join(found) == ""


async def test_all_can_be_done_by_keyboard(filled: Served, browser: Browser) -> None:
    async with browser.page() as page:
        await page.goto(_origin(filled) + "/topics")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.className") == "skip"
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
        await page.keyboard.press("/")
        assert await page.evaluate("document.activeElement.id") == "prefix"
        await page.keyboard.type("ship/")  # a letter of the field, not a shortcut
        assert await page.locator("#prefix").input_value() == "ship/"
        await page.keyboard.press("Backspace")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/topics?prefix=ship")
        await page.locator("a", has_text="shipments").focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/topic?name=shipments")
        # What deletes is folded away, opened and left by keys.
        await page.locator("summary").last.focus()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        await page.keyboard.type("shipments")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/topics?notice=topicDeleted")
        assert await page.get_by_role("status").inner_text() == "Deleted."
        # Each thing in the way of the Tab key is seen when it is reached.
        for _ in range(12):
            await page.keyboard.press("Tab")
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"


async def test_a_search_goes_on_while_it_is_typed(filled: Served, browser: Browser) -> None:
    async with browser.page() as page:
        await page.goto(_origin(filled) + "/topics")
        rows = page.locator("#results tbody tr")
        assert await rows.count() == 50
        await page.locator("#prefix").press_sequentially("pay")
        await async_api.expect(rows).to_have_count(1)
        assert await page.evaluate("document.activeElement.id") == "prefix"
        assert page.url.endswith("/topics?prefix=pay")
        await page.locator("#prefix").fill("none")
        await async_api.expect(page.locator("#results")).to_contain_text("No topic matches")
    assert browser.complaints == []


async def test_a_page_that_renews_itself_keeps_what_is_open(
    filled: Served, browser: Browser
) -> None:
    async with browser.page() as page:
        await page.goto(_origin(filled) + "/group?name=billing")
        await page.locator("summary").first.click()
        field = page.locator("input[name=topic]")
        await field.fill("ord")
        await _put(filled, 4)
        await async_api.expect(page.locator("#results tbody tr").first).to_contain_text("11")
        assert await field.input_value() == "ord"
        assert await page.locator("details").first.get_attribute("open") is not None


async def test_language_and_theme_are_chosen_on_the_page(filled: Served, browser: Browser) -> None:
    async with browser.page(color_scheme="light") as page:
        await page.goto(_origin(filled) + "/groups")
        background = "getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(background)
        await page.get_by_role("button", name="Dark").click()
        await page.wait_for_selector("html[data-theme=dark]")
        assert await page.evaluate(background) != light
        for code, name in LANGUAGES.items():
            await page.get_by_role("button", name=name).click()
            await page.wait_for_selector(f"html[lang={code}]")
        assert page.url.endswith("/groups")
        await page.get_by_role("button", name="浅色").click()
        await page.wait_for_selector("html[data-theme=light]")
        assert await page.evaluate(background) == light


async def test_it_works_without_scripts_and_on_a_small_screen(
    filled: Served, browser: Browser
) -> None:
    small = {"width": 360, "height": 640}
    async with browser.page(java_script_enabled=False, viewport=small) as page:
        for path in (await _paths(filled)).values():
            assert (await page.goto(_origin(filled) + path)).status == 200
        await page.goto(_origin(filled) + "/topics")
        await page.locator("#prefix").fill("pay")
        await page.get_by_role("button", name="Search").click()
        await page.wait_for_url("**/topics?prefix=pay")
        assert await page.locator("tbody tr").count() == 1
    async with browser.page(viewport=small) as page:
        for path in (await _paths(filled)).values():
            await page.goto(_origin(filled) + path)
            width = "document.documentElement.scrollWidth"
            assert await page.evaluate(width) <= small["width"], path
        await page.goto(_origin(filled) + "/topics")
        await _shoot(page, "small")


@pytest.mark.parametrize("width", [1280, 1024, 420])
async def test_nothing_is_cut(filled: Served, browser: Browser, width: int) -> None:
    """The page is as wide as the window. A table that is wider, on a small one alone, can be
    scrolled by keyboard."""
    size = {"width": width, "height": 900}
    cut = []
    for language, theme in (("en", "dark"), ("zh", "light")):
        async with browser.page(locale=language, color_scheme=theme, viewport=size) as page:
            for name, path in (await _paths(filled)).items():
                await page.goto(_origin(filled) + path)
                await page.evaluate(OPEN_ALL)
                found = await page.evaluate(CUT)
                cut += [f"{path} {language}: {one}" for one in found]
                await _shoot(page, f"widths/{width}-{name}-{language}-{theme}")
    assert cut == []


@pytest.mark.parametrize("width", [1280, 420])
async def test_a_long_name_leaves_room_for_the_other_columns(
    filled: Served, browser: Browser, width: int
) -> None:
    light = f"%LMQ%{'l' * 200}"
    message = pb.Message(
        topic=LONG["topic"],
        queue_id=0,
        body=b"b" * 300,
        tag=LONG["tag"],
        keys=[LONG["key"]],
        light_queues=[light],
        properties={"p" * 100: "v" * 200},
    )
    placed = (await filled.messages.Put(pb.PutRequest(message=message))).placed
    await asyncio.to_thread(filled.store.wait_visible)
    position = pb.QueuePosition(topic=LONG["topic"], queue_id=0, offset=0)
    await filled.groups.CommitOffsets(
        pb.CommitOffsetsRequest(group=LONG["group"], offsets=[position])
    )
    paths = {
        **await _paths(filled),
        "topics": f"/topics?prefix={LONG['topic']}",
        "topic": f"/topic?name={LONG['topic']}",
        "messages": f"/messages?topic={LONG['topic']}",
        "message": f"/message?id={placed.message_id}",
        "group": f"/group?name={LONG['group']}",
    }
    wrong = []
    for language in LANGUAGES:
        size = {"width": width, "height": 900}
        async with browser.page(locale=language, viewport=size) as page:
            for name, path in paths.items():
                assert (await page.goto(_origin(filled) + path)).status == 200
                await page.evaluate(OPEN_ALL)
                found = [*await page.evaluate(CUT), *await page.evaluate(NARROW)]
                wrong += [f"{name} {language}: {one}" for one in found]
                await _shoot(page, f"long/{width}-{name}-{language}")
    assert "\n".join(wrong) == ""


async def test_a_page_of_another_origin_has_no_say(filled: Served, browser: Browser) -> None:
    """A form and scripts of another site, in a browser that has this console open."""
    target = _origin(filled)

    async def evil(_: web.Request) -> web.Response:
        form = f"""<form method=post action="{target}/topics/delete">
            <input name=name value=orders><input name=typed value=orders><button>x</button></form>
            <iframe src="{target}/"></iframe>"""
        return web.Response(text=form, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", evil)
    async with TestServer(app) as foreign, browser.page() as page:
        await page.goto(target + "/topics")
        await page.goto(str(foreign.make_url("/")))
        assert await page.evaluate(
            f"fetch('{target}/topics').then(a => a.text()).catch(() => 'refused')"
        ) == ("refused")
        answer = await page.evaluate(
            f"""fetch('{target}/topics/delete', {{method: 'POST', mode: 'no-cors', body:
            new URLSearchParams({{name: 'orders', typed: 'orders'}})}}).then(a => a.type)
            .catch(() => 'refused')"""
        )
        assert answer in ("opaque", "refused")
        frame = page.frames[1]
        assert "Overview" not in await frame.content()  # what the browser says instead
        async with page.expect_navigation():
            await page.get_by_role("button", name="x").click()
        assert "was not sent by a page of this console" in await page.content()
    found = await filled.topics.ListTopics(pb.ListTopicsRequest(prefix="orders"))
    assert [topic.name for topic in found.topics] == ["orders"]


async def test_signing_in(filled: Served, browser: Browser) -> None:
    users = Users()
    async with console_of(filled, users) as client, browser.page() as page:
        await page.goto(client.origin + "/topics?prefix=pay")
        await _shoot(page, "sign-in")
        await page.keyboard.type("bob")
        await page.keyboard.press("Tab")
        await page.keyboard.type("wrong")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("[role=alert]")
        await page.get_by_label("Access key").fill("bob")
        await page.get_by_label("Secret").fill("pa55")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/topics?prefix=pay")
        assert "bob" in await page.locator("header").inner_text()
        assert await page.evaluate("document.cookie") == ""
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url("**/sign-in")
        # A page that renews itself leaves when its user is removed.
        await page.get_by_label("Access key").fill("bob")
        await page.get_by_label("Secret").fill("pa55")
        await page.keyboard.press("Enter")
        await page.wait_for_url(client.origin + "/")
        await page.goto(client.origin + "/groups")
        users.gone.add("bob")
        await page.wait_for_url("**/sign-in?next=*")


async def test_a_page_stays_as_it_is_while_the_server_refuses(
    filled: Served, browser: Browser
) -> None:
    async with browser.page() as page:
        await page.goto(_origin(filled) + "/groups")
        rows = page.locator("#results tbody tr")
        assert await rows.count() == 3
        await page.route("**/groups", lambda route: route.fulfill(status=503, body="busy"))
        for _ in range(2):  # when it asks again, it has done what it does with the first answer
            async with page.expect_response("**/groups") as answered:
                pass
            assert (await answered.value).status == 503
        assert await rows.count() == 3
