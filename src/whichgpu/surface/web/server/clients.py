"""Which client a request comes from, also behind a configured proxy, and how many wrong tokens each client has sent."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_WRONG_TOKENS, WRONG_TOKEN_SECONDS = 20, 60.0  # Wrong tokens of one client within that time, after which it is refused.
MAX_CLIENTS = 10_000  # Clients whose wrong tokens are remembered; the oldest is forgotten first.


def parse_proxies(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks of the proxies in front of the server, from addresses or networks (`10.0.0.5`, `10.0.0.0/8`)."""
    networks = []
    for text in (part.strip() for one in texts for part in one.split(",")):
        try:
            networks += [ipaddress.ip_network(text.strip("[]"))] if text else []
        except ValueError as problem:
            raise UsageError("bad-proxy", msg("error.bad-proxy", text=text[:80]), msg("hint.bad-proxy")) from problem
    return tuple(networks)


def resolve_client(scope: Scope, proxies: Sequence[Network]) -> None:
    """Replace the address and scheme of a request that a configured proxy forwards by those of its client.

    `X-Forwarded-For` lists the addresses a request has passed, the latest last: the last that is no proxy is the client. Any
    other request keeps its address, whatever its headers say.
    """
    peer = _address(scope["client"][0]) if scope.get("client") else None
    if peer is None or not _is_in(peer, proxies):
        return
    headers = Headers(scope=scope)
    passed = [_address(part) for line in headers.getlist("x-forwarded-for") for part in line.split(",")]
    client = peer
    for address in reversed(passed):
        if address is None:  # Whatever is further left cannot be trusted either.
            break
        client = address
        if not _is_in(address, proxies):
            break
    scope["client"] = (str(client), 0)
    if headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower() == "https":
        scope["scheme"] = "https"


def client_of(request: Request) -> str:
    """Return the client by which limits count: its address, or the /64 network of an IPv6 address."""
    host = request.client.host if request.client else ""
    return ":".join(host.split(":")[:4]) if ":" in host and not host.startswith("::") else host


class WrongTokens:
    """Times of the wrong tokens that each client sent lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, client: str) -> None:
        """Count a wrong token of a client."""
        self._times.setdefault(client, deque(maxlen=MAX_WRONG_TOKENS)).append(self._clock())
        self._times.move_to_end(client)
        while len(self._times) > MAX_CLIENTS:
            self._times.popitem(last=False)

    def seconds_to_wait(self, client: str) -> float:
        """Return the seconds until a client may try another token; 0 if it may now."""
        times = self._times.get(client)
        if times is None or len(times) < MAX_WRONG_TOKENS:
            return 0.0
        return max(0.0, times[0] + WRONG_TOKEN_SECONDS - self._clock())


def _address(text: str) -> Address | None:
    """Return an IP address from text, with or without a port; None if it is none."""
    text = text.strip()
    host = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0] if text.count(":") == 1 else text
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)
