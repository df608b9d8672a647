"""The verbs: each calls the command of its name and returns the answer.

Keywords are the fields of its request (`api/request`). An answer has `headline()`, `to_dict()` and `to_json()` as --json prints
it, `to_records()` for data frames and, for some answers, `chart()`; a notebook shows it as a table.
"""

# mypy: disable-error-code="no-any-return"
# The type of an answer depends on the command's name, which `call` does not express.

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Unpack

from whichgpu.api.request import catalog, load
from whichgpu.api.request import offers as prices
from whichgpu.api.request import types as of
from whichgpu.api.request.configs import CheckRequest, ExplainRequest
from whichgpu.api.request.evidence import AccuracyRequest, EvidenceRequest
from whichgpu.api.request.field import names_of
from whichgpu.api.request.kinds import config_text
from whichgpu.api.request.plan import PlanRequest
from whichgpu.api.request.recommend import RecommendRequest
from whichgpu.base.errors import UsageError
from whichgpu.surface.python.call import call

if TYPE_CHECKING:
    from whichgpu.api.facts.accuracy import AccuracyAnswer
    from whichgpu.api.facts.catalog import CpusAnswer, GpusAnswer, InstancesAnswer, RegionsAnswer
    from whichgpu.api.facts.engines import EnginesAnswer
    from whichgpu.api.facts.evidence import EvidenceAnswer
    from whichgpu.api.facts.models import ModelsAnswer
    from whichgpu.api.measure.measure import MeasureAnswer, VerifyAnswer
    from whichgpu.api.prices.buy import BuyAnswer
    from whichgpu.api.prices.changes import DiffAnswer
    from whichgpu.api.prices.history import HistoryAnswer
    from whichgpu.api.prices.offers import OffersAnswer
    from whichgpu.api.prices.store import StatusAnswer
    from whichgpu.api.workloads.check import CheckAnswer
    from whichgpu.api.workloads.compare import Comparison
    from whichgpu.api.workloads.estimate import EstimateAnswer
    from whichgpu.api.workloads.explain import ExplainAnswer
    from whichgpu.api.workloads.fit import FitAnswer
    from whichgpu.api.workloads.stream import Reply
    from whichgpu.catalog.checks import CheckReport
    from whichgpu.decide.answer.recommend_answer import RecommendAnswer
    from whichgpu.decide.plan.plan_answer import PlanAnswer
    from whichgpu.measure.report.doctor import Report

NameList = str | Sequence[str]


def gpus(*arguments: NameList, **options: Unpack[catalog.GpusRequest]) -> GpusAnswer:
    """Return GPUs by name (a family's name means all its variants), filtered and sorted; all GPUs if none is named.

    >>> import whichgpu as wg
    >>> wg.gpus("T4").gpus[0].memory_label
    '16 GB'
    >>> [gpu.name for gpu in wg.gpus(vendor="nvidia", min_memory="180GB", form_factor="sxm", sort="memory").gpus][:1]
    ['B200']
    """
    return call("gpus", arguments, options)


def instances(*arguments: NameList, **options: Unpack[catalog.InstancesRequest]) -> InstancesAnswer:
    """Return cloud machines and servers by name or beginning of a name.

    >>> import whichgpu as wg
    >>> wg.instances("p3.2xlarge").headline()
    'p3.2xlarge (aws): 1 x V100 SXM 16GB, 8 vCPUs, 61 GiB of RAM.'
    """
    return call("instances", arguments, options)


def cpus(*arguments: NameList, **options: Unpack[catalog.CpusRequest]) -> CpusAnswer:
    """Return host processors by name or by words of the name.

    >>> import whichgpu as wg
    >>> len(wg.cpus().cpus) > 10
    True
    """
    return call("cpus", arguments, options)


def regions(*arguments: NameList, **options: Unpack[catalog.RegionsRequest]) -> RegionsAnswer:
    """Return cloud regions by name, city or country.

    >>> import whichgpu as wg
    >>> {region.city for region in wg.regions("us-east-1", provider="aws").regions}
    {'Northern Virginia'}
    """
    return call("regions", arguments, options)


def models(*arguments: NameList, **options: Unpack[catalog.ModelsRequest]) -> ModelsAnswer:
    """Return built-in models and their sizes, by name or words of it; all models if none is named.

    >>> import whichgpu as wg
    >>> wg.models("llama-3.1-8b").models[0].parameters
    8030261248
    """
    return call("models", arguments, options)


def engines(*arguments: NameList, **options: Unpack[catalog.EnginesRequest]) -> EnginesAnswer:
    """Return engines (inference and training software), and the evidence for each.

    >>> import whichgpu as wg
    >>> wg.engines("vllm").engines[0].name
    'vLLM'
    """
    return call("engines", arguments, options)


def evidence(*arguments: NameList, **options: Unpack[EvidenceRequest]) -> EvidenceAnswer:
    """Return the measurements behind estimates whose texts contain all words, filtered and sorted.

    >>> import whichgpu as wg
    >>> row = wg.evidence("llama-2-7b", gpu="A100", engine="vllm", limit=1).evidence[0]
    >>> row.source, row.unit
    ('argonne', 's')
    """
    return call("evidence", arguments, options)


def accuracy(**options: Unpack[AccuracyRequest]) -> AccuracyAnswer:
    """Return left-out errors and coverage of 90% ranges, of the measurements that pass the filters, worst first.

    >>> import whichgpu as wg
    >>> found = wg.accuracy(gpu="T4", by="task")
    >>> 0 < found.total.median < found.total.p90
    True
    """
    return call("accuracy", (), options)


def offers(**options: Unpack[prices.OffersRequest]) -> OffersAnswer:
    """Return the offers of GPUs on a day, with prices.

    >>> import whichgpu as wg
    >>> found = wg.offers(gpu="H100 SXM", term="on-demand", as_of="2025-06-01", limit=3)
    >>> [row["gpu_name"] for row in found.to_records()]
    ['H100 SXM', 'H100 SXM', 'H100 SXM']
    """
    return call("offers", (), options)


def compare(*arguments: NameList, **options: Unpack[load.CompareRequest]) -> Comparison:
    """Compare GPUs and machines; with a task and a model, their speeds too.

    >>> import whichgpu as wg
    >>> found = wg.compare("T4", "L4", task="decode", model="llama-3.1-8b", precision="int8", batch=1)
    >>> [column.name for column in found.compared]
    ['T4', 'L4']
    >>> found.speed[1].relative > 0.8
    True
    """
    return call("compare", arguments, options)


def fit(model: of.ModelName | None = None, /, **options: Unpack[load.FitRequest]) -> FitAnswer:
    """Return whether a model fits each GPU named (all GPUs if none is), and its memory by part; no error if it fits none.

    >>> import whichgpu as wg
    >>> [(row.gpu_name, row.fits) for row in wg.fit("llama-3.1-8b", gpu=["T4", "L40S"], seq_in=4096).gpus]
    [('T4', 'no'), ('L40S', 'fits')]
    """
    return call("fit", (model,), options)


def explain(file: of.FilePath | None = None, /, **options: Unpack[ExplainRequest]) -> ExplainAnswer:
    """Return what the workload of a config file or serve command, or of a `text` of one, needs, and on which GPUs it runs.

    >>> import whichgpu as wg
    >>> found = wg.explain(text="vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096", gpu="L4")
    >>> (found.config.fields["model"], found.fit.gpus[0].fits)
    ('llama-3.1-8b', 'fits')
    """
    return call("explain", (file,), options)


def check(file: of.FilePath | None = None, /, **options: Unpack[CheckRequest]) -> CheckAnswer:
    """Return whether the workload of a config file or serve command fits every GPU named, and a budget if there is one.

    >>> import whichgpu as wg
    >>> wg.check(text="vllm serve meta-llama/Llama-3.1-70B", gpu="L4").passed
    False
    """
    return call("check", (file,), options)


def estimate(
    task: str | None = None, model: of.ModelName | None = None, /, **options: Unpack[load.EstimateRequest]
) -> EstimateAnswer:
    """Estimate time, throughput and memory of a task on a group of GPUs; with a `rate` or `trace`, under that load.

    >>> import whichgpu as wg
    >>> found = wg.estimate("decode", "llama-3.1-8b", gpu="H100 SXM", batch=8, seq_in=1000, no_own_measurements=True)
    >>> found.time.low < found.time.value < found.time.high
    True
    """
    return call("estimate", (task, model), options)


def estimate_requests(requests: Iterable[Mapping[str, Any] | str | bytes], together: int = 1) -> Iterator[Reply]:
    """Yield one reply with an estimate per request, in order; an invalid request gets a reply with its error.

    Requests are dicts or lines of JSON, as `whichgpu estimate --requests` reads them. Several `together` are faster.

    >>> import whichgpu as wg
    >>> requests = [{"task": "decode", "model": "llama-3.1-8b", "gpu": gpu} for gpu in ("L4", "no such GPU")]
    >>> [reply.error is None for reply in wg.estimate_requests(requests)]
    [True, False]
    """
    from whichgpu.api.workloads.stream import estimate_requests as replies

    return replies((_line(one) for one in requests), together=together)


def recommend(
    task: str | None = None, model: of.ModelName | None = None, /, **options: Unpack[RecommendRequest]
) -> RecommendAnswer:
    """Recommend GPUs, offer and layout, with cost and reasons; without a model, for a standard set of workloads.

    >>> import whichgpu as wg
    >>> found = wg.recommend("batch", "llama-3.1-8b", samples="100k", seq_in=500, seq_out=100, provider="aws", as_of="2025-06-01")
    >>> found.answer.provider, found.answer.cost.currency
    ('aws', 'USD')
    """
    return call("recommend", (task, model), options)


def plan(*models: of.ModelName | Sequence[of.ModelName], **options: Unpack[PlanRequest]) -> PlanAnswer:
    """Return the cheapest fleet for models and their traffic, or for a plan file; `simulation` says whether it meets objectives.

    >>> import whichgpu as wg
    >>> found = wg.plan(
    ...     "llama-3.1-8b", rate="5/s", seq_in=500, seq_out=200, tpot="50ms", gpu="L40S", simulate=False, curve=False,
    ...     as_of="2025-06-01",
    ... )
    >>> {row["gpu_name"] for row in found.to_records()}
    {'L40S'}
    """
    return call("plan", models, options)


def buy(*arguments: NameList, **options: Unpack[prices.BuyRequest]) -> BuyAnswer:
    """Compare the cost of owning GPUs with that of renting them.

    >>> import whichgpu as wg
    >>> row = wg.buy("RTX 4090", price={"RTX 4090": "1800usd"}, as_of="2025-06-01").rows[0]
    >>> 0 < row.break_even_use < 1
    True
    """
    return call("buy", arguments, options)


def doctor(lasting: of.Duration | None = None, catalog: of.FilePath | None = None) -> Report:
    """Report this machine's GPUs, driver and frameworks, and problems; `lasting` is how long a running job is watched.

    >>> import whichgpu as wg
    >>> wg.doctor().whichgpu == wg.__version__
    True
    """
    return call("doctor", (), {"lasting": lasting, "catalog": catalog})


def measure(minutes: float = 3, no_keep: bool = False, catalog: of.FilePath | None = None) -> MeasureAnswer:
    """Benchmark this machine's GPU and save its own calibration; raise `NoAnswer` without a GPU or torch.

    >>> import whichgpu as wg
    >>> try:
    ...     wg.measure(minutes=1000)
    ... except wg.UsageError as refused:
    ...     print(refused)
    not a number of minutes: 1000
    """
    return call("measure", (), {"minutes": minutes, "no_keep": no_keep, "catalog": catalog})


def verify(claim: str, no_own_measurements: bool = False, catalog: of.FilePath | None = None) -> VerifyAnswer:
    """Measure the step of an `estimate` command line on this machine's GPU; the `verify` field of an answer is such a line.

    >>> import whichgpu as wg
    >>> try:
    ...     wg.verify("make me a sandwich")
    ... except wg.UsageError as refused:
    ...     print(refused)
    not an estimate command: make me a sandwich
    """
    options = {"verify": claim, "no_own_measurements": no_own_measurements, "catalog": catalog}
    return call("measure", (), options)


def catalog_status(**options: Unpack[catalog.DataRequest]) -> StatusAnswer:
    """Return size, age and digest of the catalog, and the age of the content of your own price store.

    >>> import whichgpu as wg
    >>> wg.catalog_status().bundled
    True
    """
    return call("catalog status", (), options)


def catalog_check(**options: Unpack[catalog.DataRequest]) -> CheckReport:
    """Run all integrity checks on the catalog and return the findings.

    >>> import whichgpu as wg
    >>> wg.catalog_check().ok
    True
    """
    return call("catalog check", (), options)


def catalog_history(gpu: str | None = None, /, **options: Unpack[catalog.HistoryRequest]) -> HistoryAnswer:
    """Return the rental prices of a GPU over time.

    >>> import whichgpu as wg
    >>> found = wg.catalog_history("A100 SXM 80GB", provider="aws")
    >>> found.history[0].observed < found.history[-1].observed
    True
    """
    return call("catalog history", (), {**({"gpu": gpu} if gpu is not None else {}), **options})


def catalog_diff(a: of.Day | None = None, b: of.Day | None = None, /, **options: Unpack[catalog.DiffRequest]) -> DiffAnswer:
    """Return the price changes in your own price store between two days or snapshots.

    >>> import whichgpu as wg
    >>> try:
    ...     wg.catalog_diff("yesterday-ish", "today")
    ... except wg.UsageError as refused:
    ...     print(refused)
    'yesterday-ish' is not a valid date
    """
    return call("catalog diff", (a, b), options)


def _spelled_out(verb: Any, request: type) -> inspect.Signature:
    """Return the signature of a public function with every field of its request as a keyword, for completion and help."""
    signature = inspect.signature(verb)
    *places, _ = signature.parameters.values()
    positional = [place.name for place in places]
    words = sorted(
        name
        for name, field in names_of(request).items()
        if name not in positional and not field.is_display and not iskeyword(name)
    )
    keywords = [inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=None) for word in words]
    return signature.replace(parameters=[*places, *keywords])


_KEYWORDS: tuple[tuple[Any, type], ...] = (
    (gpus, catalog.GpusRequest), (instances, catalog.InstancesRequest), (cpus, catalog.CpusRequest),
    (regions, catalog.RegionsRequest), (models, catalog.ModelsRequest), (engines, catalog.EnginesRequest),
    (evidence, EvidenceRequest), (accuracy, AccuracyRequest),
    (offers, prices.OffersRequest), (compare, load.CompareRequest), (fit, load.FitRequest), (estimate, load.EstimateRequest),
    (explain, ExplainRequest), (check, CheckRequest),
    (recommend, RecommendRequest), (plan, PlanRequest), (buy, prices.BuyRequest), (catalog_status, catalog.DataRequest),
    (catalog_check, catalog.DataRequest), (catalog_history, catalog.HistoryRequest), (catalog_diff, catalog.DiffRequest),
)  # fmt: skip
for _verb, _request in _KEYWORDS:
    _verb.__signature__ = _spelled_out(_verb, _request)


def _line(request: Mapping[str, Any] | str | bytes) -> bytes:
    if isinstance(request, bytes):
        return request
    if isinstance(request, str):
        return request.encode()
    try:
        return config_text(request).encode()
    except UsageError:
        return repr(request).encode("utf-8", "replace")  # An invalid line gets its own error reply.
