"""What people type: quantities, money, dates, names, and the spellings of a workload."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.target import Target, each
from tests.fuzz.targets.draws import texts
from tests.workload_flags import read_flags
from whichgpu.api.plan.plan_file import READERS, parse_quotas, read_setting
from whichgpu.api.request.plan_settings import parse_histogram, parse_hourly, parse_hours
from whichgpu.base.dates import is_date, parse_as_known, parse_as_of
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.money import parse_money
from whichgpu.base.names import nearest, split_count, words
from whichgpu.base.units import parse_bandwidth, parse_bytes, parse_rate, parse_seconds
from whichgpu.catalog.currency import parse_rates
from whichgpu.catalog.find import find_cpus, find_gpu, find_gpus, find_instances, find_provider, find_regions, gpus_named
from whichgpu.catalog.live.import_files import day_of
from whichgpu.catalog.live.sources.gpuhunt import version_day
from whichgpu.catalog.places.country import countries_named
from whichgpu.catalog.places.distance import city_point
from whichgpu.catalog.select import check_supports, parse_capability, parse_span
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.comparisons import parse_sweep
from whichgpu.decide.plan.question import parse_owned
from whichgpu.price.filters import OffersQuery, offer_filter
from whichgpu.workload.models import built_in, parse_mlp
from whichgpu.workload.parallel import LAYOUT_FIELDS
from whichgpu.workload.spelling import ALIASES, echo, from_object, from_toml, to_argv
from whichgpu.workload.workload import KINDS

CATALOG = Catalog()
TODAY = date(2026, 11, 15)
FLAGS = (*KINDS, *ALIASES)


def _plan_flags(text: str) -> None:
    for name in READERS:
        if name != "profiles":
            try:
                read_setting(f"--{name}", name, text)
            except Exception as problem:
                from whichgpu.base.errors import WhichGpuError

                if not isinstance(problem, WhichGpuError):
                    raise


def _refusable(read: Callable[[str], object]) -> Callable[[str], object]:
    """Parsers inside a plan raise ValueError, which their caller turns into a message."""

    def tried(text: str) -> None:
        try:
            read(text)
        except (ValueError, TypeError, AttributeError):
            return

    return tried


def _kinds(text: str) -> None:
    """Each field's own reader; what it read is written and read back the same."""
    for kind in KINDS.values():
        try:
            value = kind.read_text(text)
        except InvalidValue:
            continue
        assert kind.read_text(kind.write_text(value)) == value, (kind, value)


def _spelled(text: str) -> None:
    """A workload as flags; what was read is written as an echo and as flags and reads back the same."""
    workload = read_flags(("--task=serve", "--model=llama-3.1-8b", *text.split("\n"))).workload
    assert read_flags(to_argv(workload)).workload == workload
    assert from_object(echo(workload, ())).workload == workload


def _filter_offers(text: str) -> None:
    offer_filter(CATALOG, OffersQuery(gpu=text, provider=text[:9], region=text, instance=text[3:], term=text))


def _find_gpus(text: str) -> None:
    built_in(text, CATALOG)
    nearest(text, ["A100", "H100"])
    words(text)
    split_count(text)
    countries_named(text)
    gpus_named(CATALOG, text)


flags = st.lists(
    st.tuples(st.sampled_from(FLAGS), texts("none", "bf16", "fp8", "8", "-1", "true", '{"model_type":"llama"}')), max_size=6
).map(lambda pairs: b"\n".join(f"--{name.replace('_', '-')}=".encode() + value for name, value in pairs))

TARGETS = (
    Target(
        "quantities",
        each((parse_bytes, parse_bandwidth, parse_seconds, parse_rate, parse_money, parse_capability, parse_span, parse_rates)),
        texts("GiB", "TB/s", "min", "usd/month", "KRW=1190", "7.0..9.0"),
        (b"GiB", b"ms", b"/s", b"usd/h", b"KRW=", b"..", b"\xc2\xb5s", b"."),
    ),
    Target(
        "dates",
        each(
            (
                is_date,
                lambda text: parse_as_of(text, TODAY),
                lambda text: parse_as_known(text, TODAY),
                version_day,
                lambda text: day_of(Path(text.replace("\0", "")) if text else Path("x")),
            )
        ),
        texts("2026-02-30", "2026-11", "@12", "20261114", "prices_2026-08-22/aws.csv"),
        (b"2026", b"-02-", b"@", b"29", b"/"),
    ),
    Target(
        "names",
        each(
            (
                _find_gpus,
                parse_mlp,
                lambda text: find_gpu(CATALOG, text),
                *(
                    lambda text, find=find: find(CATALOG, text)
                    for find in (find_gpus, find_instances, find_cpus, find_regions, find_provider)
                ),
                lambda text: city_point(CATALOG.regions, text),
                lambda text: check_supports(text.split(","), CATALOG.gpus),
            )
        ),
        texts("A100-SXM4-80GB", "p5.48xlarge", "EPYC 7763", "us-east-1", "Seoul", "37.5,127", "fp8", "mlp:784x10", "europe"),
        (b"SXM", b"80GB", b"x", b":", b"RTX", b"us-", b"mlp:"),
    ),
    Target(
        "filters",
        each(
            (
                _filter_offers,
                _kinds,
                _plan_flags,
                parse_owned,
                parse_quotas,
                parse_sweep,
                _refusable(parse_hours),
                _refusable(parse_hourly),
                _refusable(parse_histogram),
            )
        ),
        texts(
            "dp=2,tp=4",
            "dp=1,zero=3",
            "8xV100-SXM-16GB",
            "H100 SXM=16",
            "12 months",
            "rate=1/s,2/s",
            "100:1,200:3",
            *LAYOUT_FIELDS,
        ),
        (*(f"{name}=".encode() for name in LAYOUT_FIELDS), b"months", b"rate=", b":1,"),
    ),
    Target(
        "spellings",
        each((_spelled, from_toml)),
        flags,
        (*tuple(f"--{name.replace('_', '-')}=".encode() for name in FLAGS), b"dp=2,", b"true", b"{", b"hf:"),
    ),
)
