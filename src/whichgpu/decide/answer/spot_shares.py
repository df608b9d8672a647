"""Cost of the run with several mixes of spot and on-demand hours on the answer's machine."""

from __future__ import annotations

from math import isnan

import msgspec

from whichgpu.base.money import Money
from whichgpu.decide.candidate import Candidate, money
from whichgpu.decide.candidates import Candidates
from whichgpu.price.run import OfferTerms

ON_DEMAND_SHARES = (0.25, 0.5, 1.0)


class SpotShare(msgspec.Struct, frozen=True):
    """The cost of the run if the share `on_demand` of its machine hours is bought on demand and the rest as spot."""

    on_demand: float
    cost: Money


def spot_shares(at: int, best: Candidate, candidates: Candidates, terms: OfferTerms) -> tuple[SpotShare, ...]:
    """Return the run's cost at 25, 50 and 100% on-demand hours; empty if the answer is not spot or has no on-demand offer."""
    offer = int(candidates.offer[at])
    on_demand, spot = float(terms.on_demand[offer]), float(terms.price[offer])
    if best.term != "spot" or isnan(on_demand) or spot <= 0:
        return ()
    machine = float(candidates.run_cost.machine[at])
    rest = float(candidates.run_cost.cost[at]) - machine
    costs = {share: machine * (1 - share + share * on_demand / spot) + rest for share in ON_DEMAND_SHARES}
    return tuple(SpotShare(share, money(cost, best.cost.currency)) for share, cost in costs.items())
