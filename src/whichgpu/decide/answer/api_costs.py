"""The answer against an API that bills tokens: what the same work costs there, and the load at which both cost the same."""

from __future__ import annotations

from collections.abc import Iterator

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, significant
from whichgpu.decide.candidate import Candidate, money
from whichgpu.decide.work import Work
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Workload

TOKENS_PER_PRICE = 1e6  # Prices of an API are those of a million tokens.


def api_comparison(
    best: Candidate, workload: Workload, work: Work, prices: tuple[float, float, float] | None
) -> Iterator[Message]:
    """Yield what the work costs at an API's prices of a million tokens, for a service with its break-even.

    Prices are of input, output and cached input tokens, the share `prefix_hit` of the inputs. A service is compared over a month
    at its full request rate; a lower mean rate costs less at an API only.
    """
    outputs = workload.seq_out or 1
    if prices is None or not workload.generating:
        return
    hit = workload.prefix_hit or 0.0
    of_input = prices[0] * (1.0 - hit) + prices[2] * hit
    request = ((workload.seq_in or 0) * of_input + outputs * prices[1]) / TOKENS_PER_PRICE
    if not request:
        return
    currency = best.cost.currency
    values = {"inputs": significant(prices[0]), "outputs": significant(prices[1]), "currency": currency}
    if workload.rate is not None:
        own, api = float(best.cost_per_month.amount), request * workload.rate * MONTH_HOURS * 3600.0
        break_even = own / (request * MONTH_HOURS * 3600.0)
        use = f"{break_even / workload.rate:.0%}"
        rate = significant(break_even, 2)
        yield msg("recommend.api-service", **values, cost=_amount(api, currency), ratio=_ratio(api, own), rate=rate, use=use)
    elif work.amount is not None:
        own, api = float(best.cost.amount), request * work.amount / outputs
        yield msg("recommend.api-run", **values, cost=_amount(api, currency), ratio=_ratio(api, own))
    else:
        yield msg("recommend.api-alone", **values, requests=significant(float(best.cost_per_month.amount) / request, 2))
    if prices[2] != prices[0]:
        yield msg("recommend.api-cached", share=f"{hit:.0%}", cached=significant(prices[2]), currency=currency)


def _amount(amount: float, currency: str) -> str:
    return format_amount(money(amount, currency).amount)


def _ratio(api: float, own: float) -> str:
    return significant(api / max(own, 1e-12), 2)
