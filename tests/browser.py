"""Headless Chromium without a network, for tests of pages."""

import contextlib
import shutil

import pytest

_BROWSER, _DRIVER = map(shutil.which, ("chromium", "chromedriver"))
NEEDS_BROWSER = pytest.mark.skipif(
    not (_BROWSER and _DRIVER),
    reason="needs Debian's packages chromium and chromium-driver",
)


@contextlib.contextmanager
def open_browser():
    """Starts a browser that can reach only files and this machine.

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
    """Returns the first element that a CSS selector finds."""
    return browser.find_element("css selector", selector)


def find_all(browser, selector):
    """Returns all elements that a CSS selector finds."""
    return browser.find_elements("css selector", selector)


def wait_until(browser, condition, seconds=5):
    """Waits until a function returns something true, and returns it."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, seconds).until(lambda _: condition())
