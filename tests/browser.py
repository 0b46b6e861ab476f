"""Chromium without a window and without a network, for tests of pages."""

import contextlib
import shutil

import pytest

_BROWSER, _DRIVER = map(shutil.which, ("chromium", "chromedriver"))
# What a module of such tests is marked with.
MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (_BROWSER and _DRIVER),
        reason="needs Debian's packages chromium and chromium-driver",
    ),
]


@contextlib.contextmanager
def open_browser():
    """Starts a browser, which finds nothing but files and this machine.

    Yields:
        A `selenium.webdriver.Chrome`.
    """
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = _BROWSER
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--window-size=1200,900",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(_DRIVER)
    browser = webdriver.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()


def find(browser, selector):
    """The first element that a selector of CSS finds."""
    return browser.find_element("css selector", selector)


def find_all(browser, selector):
    """All elements that a selector of CSS finds."""
    return browser.find_elements("css selector", selector)


def wait_until(browser, condition, seconds=5):
    """Waits until something is so.

    Args:
        browser: The browser.
        condition: Function. What it asks for may not be there yet.
        seconds: How long to wait.

    Returns:
        What the condition gave.
    """
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, seconds).until(lambda _: condition())
