"""Version of the package; all other places read it from here."""

__version__ = "0.2.0"
