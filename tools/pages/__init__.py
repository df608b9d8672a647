"""The pages in a real browser, for pictures and for tests."""
