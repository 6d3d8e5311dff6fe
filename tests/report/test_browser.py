"""Reports in a real browser: Chromium without a window, driven by Selenium."""

import json
import os
import shutil

import pytest
import torch

from steinscope import compare, gof_test, train
from steinscope.models import Gaussian
from steinscope.report import report_ranking, report_test, report_training

from helpers import generator

EVIL = "<script>document.title = 'broken'</script><img src=x onerror=\"document.title = 'broken'\">"
NEEDED = "these tests need chromium and chromedriver; as root on Debian `make test` installs them"


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        if os.environ.get("CI"):
            pytest.fail(NEEDED)
        pytest.skip(NEEDED)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The three kinds of reports, with names that would like to be scripts."""
    x = torch.randn(300, 2, generator=generator(0))
    x[:, 1] = 0.6 * x[:, 1] + 0.8 * x[:, 0]
    models = {
        EVIL: -x,
        "ten": -10 * x,
        "nine": -9 * x,
        "a name without any space " * 4: -2 * x,
        "bad": x * float("nan"),
    }
    model = Gaussian(torch.zeros(2))
    result = train(model, x, steps=20, log_every=5)
    html = {
        "test": report_test(gof_test(x, -x), data=EVIL, model=EVIL),
        "wide": report_test(gof_test(x.repeat(1, 30), -x.repeat(1, 30), critics="linear")),
        "ranking": report_ranking(compare(models, x, critics="linear", folds=2), data=EVIL),
        "training": report_training(result, data=EVIL, points=x.numpy(), samples=model.sample(50).numpy()),
    }
    folder = tmp_path_factory.mktemp("reports")
    for name, page in html.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in html}


def look(browser, address, width=1100, dark=False, media=""):
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": scheme})
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)


KINDS = ["test", "wide", "ranking", "training"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_loads_alone_and_without_errors(browser, pages, kind):
    look(browser, pages[kind])
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert pages[kind] in asked
    assert [address for address in asked if address != pages[kind] and not address.startswith("data:")] == []


@pytest.mark.parametrize("kind", ["test", "ranking", "training"])
def test_a_name_that_is_a_script_does_nothing(browser, pages, kind):
    look(browser, pages[kind])
    assert "broken" not in browser.title.split(" fits best")[0].replace(EVIL, "")
    assert EVIL in browser.execute_script("return document.body.textContent")
    assert browser.execute_script("return document.querySelectorAll('body img, body script').length") == 1


def column(browser, table, number):
    script = "return [...document.querySelectorAll('table')[arguments[0]].tBodies[0].rows]"
    return browser.execute_script(f"{script}.map(row => row.cells[arguments[1]].textContent)", table, number)


def header(browser, table, number):
    return browser.execute_script(
        "return document.querySelectorAll('table')[arguments[0]].tHead.rows[0].cells[arguments[1]]", table, number
    )


def test_tables_sort_on_click(browser, pages):
    from selenium.webdriver.common.by import By

    look(browser, pages["ranking"])
    before = column(browser, 0, 1)
    head = header(browser, 0, 2)
    assert head.get_attribute("aria-sort") == "none"
    head.find_element(By.TAG_NAME, "button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    head.find_element(By.TAG_NAME, "button").click()
    assert head.get_attribute("aria-sort") == "descending"
    # Numbers are sorted as numbers, and what has none stays at the end.
    values = [float(text.replace("−", "-")) for text in column(browser, 0, 2)[:-1]]
    assert values == sorted(values, reverse=True) and values[0] > 2 * values[-1]
    assert column(browser, 0, 1)[-1] == "bad" == before[-1]
    names = header(browser, 0, 1)
    names.find_element(By.TAG_NAME, "button").click()
    assert head.get_attribute("aria-sort") == "none" and names.get_attribute("aria-sort") == "ascending"
    assert column(browser, 0, 1).index("bad") < column(browser, 0, 1).index("ten")


def test_tables_sort_with_the_keyboard(browser, pages):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    look(browser, pages["test"])
    body = browser.find_element(By.TAG_NAME, "body")
    for _ in range(3):
        # The first stop is the table itself, which can be scrolled; then the names of its columns.
        (browser.switch_to.active_element or body).send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text.startswith("Contribution")
    for key, order in ((Keys.ENTER, 1), (Keys.SPACE, -1)):
        browser.switch_to.active_element.send_keys(key)
        values = [float(text.replace("−", "-")) for text in column(browser, 0, 1)]
        assert values == sorted(values, key=lambda value, order=order: order * value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [360, 1100])
def test_the_page_is_never_wider_than_the_window(browser, pages, kind, width):
    look(browser, pages[kind], width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    heights = "return [...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height)"
    assert min(browser.execute_script(heights)) > 8


CONTRASTS = """
const channel = (value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const parse = (colour) => colour.match(/[0-9.]+/g).map(Number);
const light = (colour) => { const [r, g, b] = parse(colour).map((value) => channel(value / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = (element) => { for (; element; element = element.parentElement) {
    const colour = getComputedStyle(element).backgroundColor;
    if (parse(colour)[3] !== 0) return colour; }
  return "rgb(255, 255, 255)"; };
return [...document.querySelectorAll("body *")]
  .filter((element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
  .filter((element) => !["SCRIPT", "title"].includes(element.tagName))
  .map((element) => { const style = getComputedStyle(element);
    const colours = [style[element.closest("svg") ? "fill" : "color"], behind(element)].map(light).sort();
    return [element.tagName + "." + element.getAttribute("class"), (colours[1] + 0.05) / (colours[0] + 0.05)]; });
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_text_stands_out(browser, pages, kind, dark):
    look(browser, pages[kind], dark=dark)
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark
    contrasts = browser.execute_script(CONTRASTS)
    assert len(contrasts) > 30
    assert [(name, ratio) for name, ratio in contrasts if ratio < 4.5] == []


def test_print_is_light_even_for_dark_readers(browser, pages):
    look(browser, pages["test"], dark=True, media="print")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.parametrize("kind", KINDS)
def test_headings_pictures_and_tables_have_names(browser, pages, kind):
    look(browser, pages[kind])
    levels = browser.execute_script(
        "return [...document.querySelectorAll('h1, h2, h3')].map(heading => Number(heading.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    pictures = browser.execute_script(
        "return [...document.querySelectorAll('svg')].map(svg => [svg.getAttribute('role'), svg.ariaLabel])"
    )
    assert pictures and all(role == "img" and len(label) > 20 for role, label in pictures)
    unnamed = "return [...document.querySelectorAll('table')].filter(table => !table.caption.textContent.trim()).length"
    assert browser.execute_script(unnamed) == 0
    assert browser.execute_script("return document.documentElement.lang") == "en"
