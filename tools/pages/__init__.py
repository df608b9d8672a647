"""The web pages in a real browser, for screenshots and tests."""
