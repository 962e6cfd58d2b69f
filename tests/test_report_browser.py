"""Reports in headless Chromium: what a reader's browser makes of them."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import verdicts
from test_report_html import SAMPLES

from ai_prof.report import diff_html, html
from ai_prof.report.diff_view import FLOORS
from ai_prof.timeline.diff import diff
from ai_prof.trace.open import open_trace

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"),
    # What a newer Python says of the browser's driver is not ours to mend.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(playwright|pyee)"),
]
CAPTURES = Path(__file__).parent / "captures"


def report_of(sample):
    return html.render(sample())


def diff_of_long_names():
    """Two captures, of a command and in files of names that have no place to break."""
    traces = []
    for name in ("h200_torch_decode", "h200_torch_train"):
        trace = open_trace(CAPTURES / f"{name}.aiprof")
        source = replace(trace.source, files=(f"/captures/{name * 12}/h-100-0.aiprof",))
        first = replace(trace.processes[0], command_line=(f"/opt/{'python' * 30}", "main.py"))
        traces.append(replace(trace, source=source, processes=(first, *trace.processes[1:])))
    return diff_html.render(diff(*traces, FLOORS))


PAGES = {
    **{name: partial(report_of, sample) for name, sample in SAMPLES.items()},
    "every kind": partial(report_of, verdicts.every_kind),
    "large": partial(report_of, verdicts.large),
    "one run": partial(report_of, verdicts.one_run_of_base),
    "diff": diff_of_long_names,
}
WIDE, NARROW = 1280, 390
PATIENCE_MS = 300_000  # with a busy machine


@pytest.fixture(scope="module")
def browser():
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, args=sandbox, timeout=PATIENCE_MS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a sample's page, which is written once."""
    folder = tmp_path_factory.mktemp("pages")

    def of(sample):
        path = folder / f"{sample.replace(' ', '_')}.html"
        if not path.exists():
            path.write_text(PAGES[sample](), encoding="utf-8")
        return path.as_uri()

    return of


@pytest.fixture
def opened(browser, address):
    """Open a sample's page; what it asked for and complained of is in `page.seen`."""
    contexts = []

    def open_page(sample, width=WIDE, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.seen = []
        page.on("console", lambda message: page.seen.append(message.text))
        page.on("pageerror", lambda error: page.seen.append(str(error)))
        page.on("request", lambda request: page.seen.append(request.url))
        page.goto(address(sample))
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("sample", PAGES)
def test_nothing_is_asked_for_or_complained_of_and_no_page_is_wider_than_its_window(opened, address, sample):
    for width in (WIDE, NARROW):
        page = opened(sample, width)
        assert [url for url in page.seen if url not in {address(sample), "data:,"}] == []
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("sample", ["by time", "one run"])
def test_no_two_words_of_a_drawing_cover_each_other(opened, sample, width):
    page = opened(sample, width)
    covered = page.evaluate("""
        [...document.querySelectorAll("svg[role=img]")].flatMap((plot) => {
          const texts = [...plot.querySelectorAll("text")].map((t) => [t, t.getBoundingClientRect()]);
          return texts.flatMap(([a, p], i) => texts.slice(i + 1)
            .filter(([, q]) => p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom)
            .map(([b]) => `${plot.getAttribute("aria-label")}: ${a.textContent} | ${b.textContent}`));
        })""")
    assert covered == []


@pytest.mark.parametrize(
    ("sample", "scheme", "width"),
    [
        *((sample, scheme, WIDE) for sample in PAGES if sample != "large" for scheme in ("light", "dark")),
        *((sample, "light", NARROW) for sample in PAGES),
    ],
)
def test_axe_finds_no_serious_violation(opened, sample, scheme, width):
    page = opened(sample, width, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    found = axe.Axe().run(page).response["violations"]
    serious = [
        (each["id"], [node["html"][:160] for node in each["nodes"][:3]])
        for each in found
        if each["impact"] in {"serious", "critical"}
    ]
    assert serious == []


def test_forced_colours_leave_the_legends_theirs(opened):
    page = opened("by time", forced_colors="active")
    colours = page.evaluate(
        "[...document.querySelectorAll('.swatch')].map((each) => getComputedStyle(each).backgroundColor)"
    )
    assert len(set(colours)) >= 7


def test_a_table_that_goes_on_is_shaded_at_its_edge_until_its_end(opened):
    page = opened("by time", NARROW)
    caption = page.locator(".scroll[aria-label=Baselines]")
    caption.scroll_into_view_if_needed()

    def edge():
        box = caption.bounding_box()
        corner = {"x": box["x"] + box["width"] - 8, "y": box["y"], "width": 8, "height": 8}
        return page.screenshot(clip=corner)

    begun = edge()
    caption.evaluate("(table) => { table.scrollLeft = table.scrollWidth; }")
    assert edge() != begun


def test_a_narrow_table_says_which_columns_a_wider_window_has(opened):
    told = "getComputedStyle(document.querySelector('table.metrics caption div'), '::after').content"
    heads = "document.querySelector('table.metrics thead').querySelectorAll('th')"
    missing = f"[...{heads}].filter((head) => !head.offsetWidth).map((head) => head.textContent)"
    narrow, wide = (opened("by structure", width) for width in (NARROW, WIDE))
    assert wide.evaluate(missing) == []
    assert wide.evaluate(told) == "none"
    *columns, verdict = narrow.evaluate(missing)
    assert columns
    assert all(head.lower() in narrow.evaluate(told).lower() for head in columns)
    assert verdict == "Verdict"  # it stands below the row's name


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("sample", ["mixed", "by time", "by structure", "nasty"])
def test_every_row_has_its_verdict_once_for_eye_and_ear_at_every_width(opened, sample, width):
    page = opened(sample, width)
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    rows = page.locator(":is(table.metrics, table.counts) tbody tr:not(.why-row)")
    words = rows.evaluate_all("(rows) => rows.map((row) => row.lastElementChild.textContent)")
    assert len(words) >= 4
    shown = rows.evaluate_all("(rows) => rows.map((row) => row.innerText)")
    assert [text.count(verdict) for text, verdict in zip(shown, words, strict=True)] == [1] * len(words)
    for verdict in set(words):
        name = re.compile(rf"\b{re.escape(verdict)}( |$)")
        assert rows.and_(page.get_by_role("row", name=name)).count() >= words.count(verdict)


def test_without_javascript_everything_is_there_to_read(opened):
    page = opened("by time", java_script_enabled=False)
    assert page.locator("h1").inner_text() == "1 of 1 workload regressed"
    assert page.locator(".timelines .side").count() == 2
    assert page.locator(".timelines .lane path").count() >= 8
    assert page.locator(".timelines button").count() == 0
    assert page.locator("table.places tbody th").count() == 2


def test_keys_and_buttons_zoom_both_timelines_alike(opened):
    page = opened("by time")
    views = "[...document.querySelectorAll('.lane svg')].map((plot) => plot.getAttribute('viewBox'))"
    before = page.evaluate(views)
    page.locator(".timelines").focus()
    page.keyboard.press("+")
    zoomed = page.evaluate(views)
    assert len({view.rsplit(" ", 1)[0] for view in zoomed}) == 1
    assert zoomed != before
    page.keyboard.press("ArrowRight")
    assert page.evaluate(views) != zoomed
    page.get_by_role("button", name="Whole iteration").click()
    assert page.evaluate(views) == before


def test_the_ground_of_a_timeline_ends_with_its_iteration_when_zoomed(opened):
    page = opened("by time")
    widths = "[...document.querySelectorAll('.lane i')].map((ground) => parseFloat(ground.style.width))"
    short, whole = min(page.evaluate(widths)), max(page.evaluate(widths))
    assert short < whole == 100
    page.get_by_role("button", name="Zoom in").click()
    assert min(page.evaluate(widths)) == pytest.approx(2 * short - 50, abs=0.1)
    page.get_by_role("button", name="Whole iteration").click()
    assert min(page.evaluate(widths)) == pytest.approx(short)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_number_of_a_timelines_axis_is_cut(opened, width):
    page = opened("by time", width)
    cut = """(() => {
        const edge = document.querySelector('.axis-ticks').getBoundingClientRect().right;
        const ticks = [...document.querySelectorAll(".axis-ticks span")].filter((tick) => tick.textContent);
        const over = ticks.filter((tick) => tick.getBoundingClientRect().right > edge);
        return over.map((tick) => tick.textContent);
    })()"""
    assert page.evaluate(cut) == []
    for name in ("Zoom in", "Later", "Later"):
        page.get_by_role("button", name=name).click()
        assert page.evaluate(cut) == []


def test_a_mark_says_what_it_is_when_pointed_at(opened):
    page = opened("by time")
    gaps = page.locator(".side").nth(1).locator(".lane svg").nth(1)
    gaps.scroll_into_view_if_needed()
    gaps.hover(position={"x": 40, "y": 5})
    assert page.locator(".tip").inner_text() == ("gap, data: waiting for data: 4.700 ms, at 0 µs")


def test_print_fits_a_page_of_paper(opened):
    page = opened("by time", 720)
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") == 720


def test_a_printed_page_is_light_and_breaks_no_short_word(opened):
    page = opened("mixed", 720, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(176, 60, 0)"
    heights = page.evaluate(
        "[...document.querySelectorAll('table.metrics tbody td.text')].map((cell) => cell.clientHeight)"
    )
    assert max(heights) < 2 * min(height for height in heights if height)


def test_print_opens_what_is_folded_and_leaves_tools_out(opened):
    page = opened("mixed")
    page.emulate_media(media="print")
    assert page.locator(".tools").first.is_hidden()
    assert page.pdf(format="A4").startswith(b"%PDF")
    folded = "[...document.querySelectorAll('details:not([open]) table')]"
    heights = page.evaluate(f"{folded}.map((table) => table.getBoundingClientRect().height)")
    assert heights
    assert all(height > 0 for height in heights)


def test_axe_is_at_work(opened):
    page = opened("passing")
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert [each["id"] for each in axe.Axe().run(page).response["violations"]] == ["button-name"]
