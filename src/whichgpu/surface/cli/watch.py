"""`whichgpu watch`: utilisation and cost of this machine's GPUs."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from whichgpu.api.request.kinds import Parsed
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import Money
from whichgpu.base.units import parse_seconds
from whichgpu.measure.clock import SystemClock
from whichgpu.measure.idle import IdleRule
from whichgpu.measure.meter import parse_price
from whichgpu.measure.watcher import WatchReading, WatchSettings
from whichgpu.surface.cli.click_parts import command, option, value_type
from whichgpu.surface.cli.meter_printers import Printer, printer_of
from whichgpu.surface.cli.prometheus_file import check_metrics_file, write_metrics
from whichgpu.surface.commands.session import Session
from whichgpu.surface.meter_text import duration_text

if TYPE_CHECKING:  # Reading an engine's metrics needs numpy, which a watch without them does not import.
    from whichgpu.measure.endpoint.token_meter import TokenMeter

MIN_INTERVAL, MIN_IDLE, MIN_COUNTDOWN = 0.2, 1.0, 5.0  # Smallest accepted values, in seconds.
DURATION = value_type(Parsed(parse_seconds))


@command("watch", epilog=True)
@option("--price", type=value_type(Parsed(parse_price)), metavar="MONEY/h", help="option.watch-price")
@option("--every", type=DURATION, metavar="DURATION", default="2s", help="option.watch-every")
@option("--idle", type=DURATION, metavar="DURATION", default="10min", help="option.watch-idle")
@option("--then", metavar="COMMAND", help="option.watch-then")
@option("--countdown", type=DURATION, metavar="DURATION", default="60s", help="option.watch-countdown")
@option("--for", "lasting", type=DURATION, metavar="DURATION", help="option.watch-for")
@option("--once", is_flag=True, help="option.watch-once")
@option("--line", is_flag=True, help="option.watch-line")
@option("--explain", is_flag=True, help="option.watch-explain")
@option("--prometheus", metavar="FILE", help="option.watch-prometheus")
@option("--endpoint", metavar="URL", help="option.watch-endpoint")
def watch(
    session: Session,
    price: Money | None,
    every: float,
    idle: float,
    then: str | None,
    countdown: float,
    lasting: float | None,
    once: bool,
    line: bool,
    explain: bool,
    prometheus: str | None,
    endpoint: str | None,
) -> int:
    """Print GPU readings and warnings; run the command `then` after `idle` seconds with all GPUs idle and a countdown."""
    from whichgpu.api.measure import machine as verbs

    _check(every, idle, then, countdown)
    if then is not None and click.get_current_context().get_parameter_source("then") is not ParameterSource.COMMANDLINE:
        raise UsageError("then-elsewhere", msg("error.then-elsewhere"), msg("hint.then"))
    if prometheus:
        check_metrics_file(prometheus)
    elif endpoint:
        raise UsageError("usage", msg("error.watch-endpoint"), msg("hint.watch-endpoint"))
    meter = _token_meter(endpoint) if endpoint else None
    rule = IdleRule(idle, countdown, command=then is not None)
    settings = WatchSettings(every, price, rule, lasting, once, explain)
    clock = SystemClock(listening=then is not None)
    try:
        watching = verbs.watch(settings, session.catalog, clock)
    except NoAnswer as none:  # Text output has only the message; JSON also has the hint.
        raise none if session.format == "json" else NoAnswer(none.kind, none.message) from none
    names = [detected.match.name or detected.card.name for detected in watching.gpus]
    ids = [detected.match.gpu for detected in watching.gpus]
    printer = printer_of(session, names, ids, line, settings, then)
    if then is not None and not once:
        session.say(msg("watch.then", command=then, idle=duration_text(idle), countdown=duration_text(countdown)))
    readings = _with_metrics(watching.readings, names, prometheus, meter) if prometheus else watching.readings
    due = _follow(readings, printer, quiet=once)
    return _run(session, then) if due and then is not None else 0


def _check(every: float, idle: float, then: str | None, countdown: float) -> None:
    limits = (("every", every, MIN_INTERVAL), ("idle", idle, MIN_IDLE), ("countdown", countdown, MIN_COUNTDOWN))
    for flag, value, low in limits:
        if value < low:
            raise UsageError("too-short", msg("error.too-short", flag=flag, least=f"{low:g} s"), msg("hint.bad-duration"))
    if then is not None and not then.strip():
        raise UsageError("missing-value", msg("error.missing-value", name="--then"), msg("hint.then"))


def _token_meter(endpoint: str) -> TokenMeter:
    """Return the meter of the tokens of the engine at an address; raise an error if it has no counters of them."""
    from whichgpu.measure.endpoint.address import parse_address
    from whichgpu.measure.endpoint.token_meter import TokenMeter

    return TokenMeter(parse_address(endpoint))


def _with_metrics(
    readings: Iterator[WatchReading], names: Sequence[str], path: str, meter: TokenMeter | None
) -> Iterator[WatchReading]:
    """Yield readings after their metrics, and the tokens of an engine, were written to a file."""
    for reading in readings:
        write_metrics(reading, names, path, meter.read() if meter else None)
        yield reading


def _follow(readings: Iterator[WatchReading], printer: Printer, quiet: bool) -> bool:
    """Print readings until they end or are interrupted; return whether the idle command is to be run."""
    last: WatchReading | None = None
    due = False
    with _signals_as_interrupt():
        try:
            for reading in readings:
                last = reading
                printer.show(reading)
                due = any(event.kind == "run" for event in reading.events)
        except KeyboardInterrupt:  # Ctrl-C is the usual way to end.
            due = False
        finally:
            close = getattr(readings, "close", None)
            if close:
                close()
        if last is not None and not quiet:
            printer.end(last)
    return due


@contextlib.contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that the summary is printed and no command is run."""

    def stop(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {}
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            with contextlib.suppress(ValueError):  # Signal handlers can be set in the main thread only.
                previous[name] = signal.signal(getattr(signal, name), stop)
    try:
        yield
    finally:
        for name, handler in previous.items():
            signal.signal(getattr(signal, name), handler)


def _run(session: Session, command: str) -> int:
    """Run the user's command in a shell; its output goes to stderr, since stdout has the readings."""
    session.say(msg("watch.runs", command=command))
    session.out.flush()
    try:
        done = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, stdout=2, check=False)
    except OSError as problem:
        raise NoAnswer("command-failed", msg("error.command-failed", command=command, code=problem.strerror or "?")) from problem
    if done.returncode:
        raise NoAnswer("command-failed", msg("error.command-failed", command=command, code=done.returncode))
    return 0
