"""The address of a server: parsed from a URL, and whether it is on this machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

VERSION_PATH = "/v1"  # Path under which OpenAI-compatible servers have their API.
DEFAULT_PORTS = {"http": 80, "https": 443}  # By scheme, as in RFC 9110.


class Address(msgspec.Struct, frozen=True):
    """Scheme, host, port and path prefix of an OpenAI-compatible server."""

    scheme: str
    host: str
    port: int
    prefix: str

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine; a name other than `localhost` is not looked up and counts as another machine."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """Return the address as a URL, without anything but scheme, host, port and prefix."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def parse_address(text: str) -> Address:
    """Return the address in a URL; raise `UsageError` unless it is http or https, without user, password, query or fragment.

    >>> parse_address("http://127.0.0.1:8000").url, parse_address("https://[::1]/v1/").is_loopback
    ('http://127.0.0.1:8000/v1', True)
    """
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as problem:
        raise _invalid(text) from problem
    has_more = bool(parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or has_more or not text.isprintable() or " " in text.strip():
        raise _invalid(text)
    path = parts.path.rstrip("/")
    prefix = path if path.endswith(VERSION_PATH) else path + VERSION_PATH
    return Address(parts.scheme, parts.hostname, port or DEFAULT_PORTS[parts.scheme], prefix)


def _invalid(text: str) -> UsageError:
    return UsageError("bad-endpoint", msg("error.bad-endpoint", text=text[:80]), msg("hint.bad-endpoint"))
