"""The highest request rate that a service keeps within a budget or a power limit, and the recommendation for it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from whichgpu.api.recommend.recommend import recommend_spelled
from whichgpu.base.messages import msg
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import MAX_REPLICAS, Configuration
from whichgpu.decide.modes import REQUESTS_PER_PERSON_HOUR, team_rate
from whichgpu.decide.question import EvaluatedQuestion, Question
from whichgpu.decide.recommend import any_passes
from whichgpu.decide.relax import round_down
from whichgpu.decide.requirements import Requirements
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.price.table import Ints
from whichgpu.workload.spelling import ParsedWorkload

TOLERANCE = 1.06  # The highest rate is located to within this factor.
SMALLEST_SHARE = 1 / 256  # Rates below this share of the upper bound are not tried.


def highest_load(
    parsed: ParsedWorkload, query: Requirements, as_of: date | None, lookups: LookupCache, overlay: Path | None
) -> RecommendAnswer | None:
    """Return the recommendation for the highest request rate that keeps within the limits; None if not one person's does."""
    day = as_of or lookups.catalog.as_known or date.today()

    def question(rate: float) -> Question:
        workload = replace(parsed.workload, rate=rate)
        return Question(ParsedWorkload(workload, parsed.user_fields | {"rate"}), query, day, lookups, overlay, True)

    low = team_rate(1)
    high = _upper_bound(question(low).evaluated())
    while not _holds(question(high).evaluated()):
        high /= 2.0
        if high <= low:
            return None
    low, high = high, 2.0 * high
    while high / low > TOLERANCE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _holds(question(middle).evaluated()) else (low, middle)
    rate = float(round_down(low))
    answer = recommend_spelled(question(rate).spelled, query, as_of, lookups, overlay)
    people, each = round_down(rate * 3600.0 / REQUESTS_PER_PERSON_HOUR), f"{REQUESTS_PER_PERSON_HOUR:g}"
    sentence = msg("recommend.sentence-highest", rate=f"{rate:g}", people=people, what=answer.sentence)
    return replace(answer, sentence=sentence, assumptions=(msg("assumed.highest", people=people, each=each), *answer.assumptions))


def _upper_bound(screened: EvaluatedQuestion) -> float:
    """Return requests per second that no candidate exceeds within the limits: as many replicas as they allow, at their bound."""
    candidates, constraints = screened.join(screened.results), screened.selection.constraints
    bounds = np.array(
        [(one.rate_bound or one.capacity or 0.0) if isinstance(one, Configuration) else 0.0 for one in screened.results]
    )
    replicas = np.full(len(candidates.group), float(MAX_REPLICAS))
    if constraints.budget is not None:
        replicas = np.minimum(replicas, float(constraints.budget.amount) * candidates.copies / candidates.spent)
    if constraints.max_watts is not None:
        replicas = np.minimum(replicas, constraints.max_watts * candidates.copies / candidates.watts)
    rates = np.floor(replicas + 1e-9) * bounds[candidates.group]
    return max(float(rates[candidates.passing()].max(initial=0.0)), team_rate(1))


def _holds(screened: EvaluatedQuestion) -> bool:
    """Return whether a candidate keeps within the limits and, at low risk, is likely to keep its objectives."""
    market = screened.selection.market

    def order(candidates: Candidates) -> Ints:
        passing = candidates.order("cost", market, cautious=True)
        return passing if candidates.risky is None else passing[~candidates.risky[passing]]

    return any_passes(replace(screened, risk=screened.selection.constraints.risk_for(serving=True)), order)
