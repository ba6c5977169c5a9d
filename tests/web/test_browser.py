"""The pages in a real browser: on one screen, readable for all, quiet while they refresh."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.a_service import NOW, AService, History, a_service, down, healthy, incident, snapshot
from tests.a_site import Site, a_site, web
from watchdog.model import Key, Severity, Snapshot, State, Transition, Verdict
from watchdog.report.course import Course, Mark
from watchdog.report.day import Day
from watchdog.report.day_readings import DayReadings
from watchdog.web.page import REFRESH_SECONDS

CHROMIUM = shutil.which("chromium")
PHONE, LAPTOP, NARROWEST = (390, 844), (1280, 800), (320, 640)
PATHS = (
    "/",
    "/?target=chat",
    "/?target=embed",
    "/?label=team%3Dsearch",
    "/incidents",
    "/incidents/kv-pool-exhausted/chat/meta/llama-8b/0",
    "/rules",
    "/rules/kv-pool-exhausted",
    "/rules/ttft-high",
    "/targets",
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Root has no sandbox; what is shown here is ours.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def went(one: Snapshot) -> Course:
    course = Course()
    for at in range(140):
        course.note(replace(one, at=5.0 * at, wall=NOW - 700 + 5.0 * at))
    return course


def a_day(one: Snapshot) -> DayReadings:
    day = DayReadings()
    for at in range(24):
        day.note(replace(one, wall=NOW - 600 * (23 - at)), [Mark(NOW - 100, "the server restarted")])
    return day


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site[AService]]:
    sick = snapshot("chat")
    sick = replace(sick, target=replace(sick.target, labels={"team": "search"}))
    shown = (healthy("embed"), sick, down("batch"))
    service = a_service(tmp_path_factory.mktemp("rules"), *shown)
    service.went = {each.target.name: went(each) for each in shown}
    service.of_day = {"chat": Day()}
    service.of_day["chat"].note(Verdict.CRITICAL, NOW)
    service.of_day_readings = {"chat": a_day(sick)}
    began = Transition(incident(state=State.PENDING, firing_since=None), None, NOW - 205)
    service.history = History((began, Transition(incident(), State.PENDING, NOW - 200)))
    with a_site(service, web(dashboard_url="http://localhost:3000/d/x?var-target={target}")) as made:
        yield made


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Site[AService]]:
    """One sick server, which a test may change."""
    service = a_service(tmp_path, snapshot("chat"))
    service.went = {"chat": went(snapshot("chat"))}
    with a_site(service) as made:
        yield made


def opened(browser: Browser, site: Site[AService], path: str, size: tuple[int, int], **how: object) -> Page:
    width, height = size
    page = browser.new_context(viewport={"width": width, "height": height}, **how).new_page()  # type: ignore[arg-type]
    page.clock.install()
    page.goto(f"http://localhost:{site.port}{path}")
    return page


def refreshed(page: Page) -> None:
    """After the next refresh has been answered."""
    with page.expect_response(lambda response: response.ok):
        page.clock.run_for(REFRESH_SECONDS * 1000)
    expect(page.locator("#fresh time")).to_be_attached()


@pytest.mark.parametrize("path", PATHS)
def test_the_pages_are_accessible_in_light_and_dark_and_never_scroll_sideways(
    browser: Browser, site: Site[AService], path: str
) -> None:
    page = opened(browser, site, path, NARROWEST)
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROWEST[0]
    page.set_viewport_size({"width": LAPTOP[0], "height": LAPTOP[1]})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    page.context.close()


@pytest.mark.parametrize("size", [PHONE, LAPTOP])
def test_one_screen_tells_what_for_how_long_what_to_do_and_where_it_goes(
    browser: Browser, site: Site[AService], size: tuple[int, int]
) -> None:
    page = opened(browser, site, "/?target=chat", size, timezone_id="Europe/Berlin")
    places = []
    for told in (
        page.locator(".state .word"),
        page.get_by_text("since 16:09:55 (14:09:55 UTC)"),
        page.locator(".trend"),
        page.locator("h1"),
        page.get_by_text("457 of 495 requests wait."),
        page.get_by_text("Right now"),
        page.get_by_text("--max-model-len 8192"),
    ):
        box = told.first.bounding_box()
        assert box is not None
        places.append(box["y"] + box["height"])
    assert max(places) <= size[1]
    page.context.close()


def test_a_refresh_keeps_focus_folds_and_scroll_and_tells_of_another_verdict(
    browser: Browser, alone: Site[AService]
) -> None:
    page = opened(browser, alone, "/", PHONE)
    icon = page.locator("#icon").get_attribute("href")
    assert page.title() == "CRITICAL chat: The KV cache is full - vllm-watchdog"
    page.get_by_text("What will not help").click()
    page.locator("summary", has_text="Symptoms").focus()
    page.evaluate("scrollTo(0, 300)")
    refreshed(page)
    assert page.locator("details[open] > summary").all_inner_texts()[0].startswith("What will not help")
    assert page.evaluate("document.activeElement.textContent").startswith("Symptoms")
    assert page.evaluate("scrollY") == 300
    assert page.locator("#news").inner_text() == ""
    assert page.locator("#icon").get_attribute("href") == icon
    alone.service.last["chat"] = replace(snapshot("chat"), verdict=Verdict.HEALTHY, incidents=(), lead=None)
    refreshed(page)
    expect(page).to_have_title(re.compile("^HEALTHY chat"))
    assert page.locator("#news").inner_text() == "HEALTHY chat - vllm-watchdog"
    assert page.locator("#icon").get_attribute("href") != icon
    page.context.close()


def test_the_page_says_that_it_is_held_or_that_the_watchdog_is_gone(
    browser: Browser, alone: Site[AService]
) -> None:
    page = opened(browser, alone, "/", LAPTOP, timezone_id="UTC")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    page.clock.run_for(REFRESH_SECONDS * 1000)
    fresh = page.locator("#fresh")
    assert fresh.inner_text() == "held while text is selected; data is from 14:13:20 UTC"
    assert page.evaluate("String(getSelection())").strip() == "The KV cache is full"
    page.evaluate("getSelection().removeAllRanges()")
    refreshed(page)
    assert fresh.inner_text() == "updated 14:13:20 UTC"
    page.context.set_offline(True)
    page.clock.run_for(REFRESH_SECONDS * 1000)
    expect(page.locator("#fresh")).to_contain_text("Lost contact")
    assert fresh.inner_text() == "Lost contact with the watchdog; data is from 14:13:20 UTC"
    assert page.locator("#news").inner_text() == fresh.inner_text()
    page.context.close()


def test_all_is_there_without_scripts_and_refreshes(browser: Browser, alone: Site[AService]) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(f"http://localhost:{alone.port}/")
    assert page.locator("meta[http-equiv=refresh]").get_attribute("content") == str(REFRESH_SECONDS)
    assert page.locator("svg.chart").count() >= 4
    assert page.get_by_text("since 14:09:55 UTC").count() == 1
    page.context.close()


def test_the_keyboard_begins_with_a_way_to_the_diagnosis(browser: Browser, alone: Site[AService]) -> None:
    page = opened(browser, alone, "/", LAPTOP)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the diagnosis"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.context.close()


@pytest.mark.parametrize("path", ["/", "/?target=chat", "/incidents/kv-pool-exhausted/chat/meta/llama-8b/0"])
def test_a_print_is_one_sheet(browser: Browser, site: Site[AService], path: str) -> None:
    page = opened(browser, site, path, LAPTOP)
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 1
    page.context.close()


def test_the_worst_of_two_hundred_servers_are_on_one_screen_below_what_ails_the_fleet(
    browser: Browser, tmp_path: Path
) -> None:
    sick = [snapshot(f"chat-{number}") for number in range(3)]
    calm = [healthy(f"embed-{number}") for number in range(197)]
    service = a_service(tmp_path, *calm, *sick)
    uneven = "Of 200 servers of this model the busiest did 9% of the work and the least busy 0%."
    service.fleet = (
        incident(key=Key("replica-imbalance", "*", "m", ""), severity=Severity.WARNING, cause=uneven),
    )
    with a_site(service) as made:
        for size in (PHONE, LAPTOP):
            page = opened(browser, made, "/", size)
            box = page.locator(".fleet tbody tr").nth(2).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= size[1]
            page.context.close()


def test_nothing_is_asked_of_elsewhere_and_nothing_is_refused(browser: Browser, site: Site[AService]) -> None:
    page = browser.new_context().new_page()
    asked: list[str] = []
    told: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    for path in PATHS:
        page.goto(f"http://localhost:{site.port}{path}")
    # A failed picture or a refused style would be told here.
    assert told == []
    assert all(url.startswith((f"http://localhost:{site.port}/", "data:")) for url in asked)
    page.context.close()
