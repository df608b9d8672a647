"""Capacity of replicas for requests of one length as `recommend` finds it: by simulation, with the scheduler limits it chooses.

Only columns that a fleet uses are simulated. All others have the upper bounds of `recommend`, so none of these could make a
fleet cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.evaluate import best_configurations
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.configurations.simulate import Simulator
from whichgpu.decide.configurations.slow_steps import MIN_HEADROOM
from whichgpu.decide.constraints import Risk
from whichgpu.decide.plan.capacity import ReplicaCapacity
from whichgpu.decide.plan.simulate import simulate_equal_replicas
from whichgpu.decide.plan.solver.build import Column, Formulation, ServedModel, table_of
from whichgpu.decide.plan.solver.problem import Pool, Solution
from whichgpu.decide.plan.supply import GpuPool
from whichgpu.decide.plan.traffic import traffic_of
from whichgpu.decide.work import running_sequences
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.load import Lengths
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.workload.workload import Parallel

MIXED_STEP = 0.93  # Factor on capacities of a fleet of several kinds of replica that misses its objectives (assumed).


def has_one_length(model: ServedModel) -> bool:
    """Return whether a model's requests all have one length, and no objective that `recommend` lacks."""
    goals, traffic = model.objectives, model.traffic
    if len(traffic.buckets) > 1 or traffic.trace is not None or goals.latency_max is not None:
        return False
    (bucket,) = traffic.buckets
    return bucket.most_tokens == round(bucket.prompt) + round(bucket.output)


def of_simulation(replica: ReplicaCapacity, one: Configuration, rate: float, outputs: int) -> ReplicaCapacity:
    """Return a replica with a simulated rate in requests per second, and the scheduler limits and batch of its simulation.

    `outputs` are the output tokens of a request.
    """
    assert replica.limits is not None
    assert one.simulation is not None
    tokens, sequences, simulation = one.overrides.max_batched_tokens, one.overrides.max_sequences, one.simulation
    limits = replace(replica.limits, max_batched_tokens=tokens or replica.limits.max_batched_tokens)
    limit = sequences or limits.max_sequences
    running = running_sequences(simulation.rate, simulation.ttft, simulation.tpot, outputs, limit)
    return replace(
        replica, rates=np.array([rate]), batches=np.array([float(running)]), limits=limits, late_rates=None, max_sequences=limit
    )


def keeps_objectives(
    request: WorkloadRequest, group: Group, one: Configuration, limits: SchedulerLimits, replicas: int, risk: Risk
) -> bool:
    """Return whether a number of simulated replicas of `recommend` keep a question's objectives as a plan's fleet must."""
    workload = request.workload
    inputs, outputs = workload.seq_in or 1, workload.seq_out or 1
    objectives = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile)
    traffic = traffic_of(workload.rate, Lengths(float(inputs)), Lengths(float(outputs)))
    served = ServedModel(str(workload.model), request, traffic, objectives)
    pool = GpuPool(Pool(group.gpu.id, group.gpu.id, group.gpus, ()), group.gpu, group.fabric, one.parallel.tp)
    no_rate = np.zeros(1)
    replica = of_simulation(ReplicaCapacity(one.parallel.tp, one.precision, no_rate, no_rate, limits), one, 0.0, outputs)
    simulation = simulate_equal_replicas(served, pool, replica, replicas, risk=risk)
    return simulation.holds and simulation.holds_slow


class SimulatedColumns:
    """Columns of a problem whose aggregated replicas have simulated capacities once used, and upper bounds before that."""

    def __init__(self, formulation: Formulation, risk: Risk) -> None:
        self._formulas, self._requests = formulation, [_request(one) for one in formulation.models]
        # Simulated replicas sustain this multiple of their capacity.
        self._headroom_factor = MIN_HEADROOM if risk == "low" else 1.0
        self._simulators = [Simulator(one, risk) for one in self._requests]
        # By index of a column: its configuration until it is simulated, and its replica as simulated if its capacity was reduced.
        self._configurations: dict[int, Configuration] = {}
        self._simulated_replicas: dict[int, ReplicaCapacity] = {}
        self.formulation = self._with_bounds()

    def _with_bounds(self) -> Formulation:
        """Return the problem with all aggregated replicas at upper bounds of their capacities."""
        formulas, columns = self._formulas, [one for one in self._formulas.columns if one.replica.role != "both"]
        for m, request in enumerate(self._requests):
            by_degree: dict[int, list[Column]] = {}
            for place, row in enumerate(formulas.replicas[m]):
                for replica in row:
                    pool = formulas.gpu_pools[place]
                    count = pool.pool.size // replica.tp if len(formulas.models) == 1 and not pool.owned else 1
                    if count and replica.limits is not None:
                        by_degree.setdefault(replica.tp, []).append(Column(m, place, replica, count))
            for tp, units in by_degree.items():
                groups = [self._group(one) for one in units]
                configurations = best_configurations(_of_degree(request, tp), groups)
                for unit, group, one in zip(units, groups, configurations, strict=True):
                    if isinstance(one, Configuration) and (bound := self._simulators[m].upper_bound(group, one)):
                        self._configurations[len(columns)] = one
                        replica = replace(unit.replica, rates=np.array([bound / unit.replicas]), late_rates=None)
                        columns.append(replace(unit, replica=replica))
        return table_of(replace(formulas, problem=replace(formulas.problem, late=None)), tuple(columns))

    def _group(self, unit: Column) -> Group:
        pool: GpuPool = self._formulas.gpu_pools[unit.pool_index]
        return Group(pool.gpu, unit.replica.tp * unit.replicas, 1, pool.fabric, precision=unit.replica.precision)

    def simulate(self, solution: Solution) -> bool:
        """Replace the bounds of the columns that a plan uses by simulated capacities; return whether any had a bound."""
        new = [j for j in _columns_in_use(solution) if j in self._configurations]
        columns = list(self.formulation.columns)
        for j in new:
            column, group, simulator = columns[j], self._group(columns[j]), self._simulators[columns[j].model]
            one = simulator.simulated(group, self._configurations.pop(j))
            replica = replace(column.replica, rates=np.zeros(1))
            if isinstance(one, Configuration) and one.simulation is not None:
                outputs = self._requests[column.model].workload.seq_out or 1
                replica = of_simulation(replica, one, simulator.highest(group, one) / column.replicas, outputs)
            columns[j] = replace(column, replica=replica)
        if new:
            self.formulation = table_of(self.formulation, tuple(columns))
        return bool(new)

    def reduce(self, solution: Solution) -> None:
        """Lower the capacities of the columns that a plan uses, so that the next plan has more replicas or others."""
        in_use, columns = _columns_in_use(solution), list(self.formulation.columns)
        for j in in_use:
            units, column = float(solution.counts[:, j].max()), columns[j]
            self._simulated_replicas.setdefault(j, column.replica)
            rate = float((solution.shares[:, j] * self.formulation.problem.demand).sum(axis=1).max())
            max_rate = rate / (units + 1.0) / column.replicas if len(in_use) == 1 else MIXED_STEP * float(column.replica.rates[0])
            columns[j] = replace(column, replica=replace(column.replica, rates=np.array([max_rate * (1.0 + 1e-9)])))
        self.formulation = table_of(self.formulation, tuple(columns))

    def estimated(self) -> Formulation:
        """Return the problem with capacities at the estimated step times, and the headroom that is left of them at the risk.

        Columns that were not simulated have their capacities by formulas.
        """
        formulas = {
            (m, place, one.precision, one.tp): one
            for m, rows in enumerate(self._formulas.replicas)
            for place, row in enumerate(rows)
            for one in row
        }
        columns = list(self.formulation.columns)
        for j, column in enumerate(columns):
            replica = self._simulated_replicas.get(j, column.replica)
            if replica.role == "both":
                columns[j] = replace(column, replica=replace(replica, rates=replica.rates * self._headroom_factor))
        for j in self._configurations:
            column = columns[j]
            replica = formulas[column.model, column.pool_index, column.replica.precision, column.replica.tp]
            columns[j] = replace(column, replica=replace(replica, late_rates=None))
        problem = replace(self.formulation.problem, headroom=1.0 - 1.0 / self._headroom_factor)
        return table_of(replace(self.formulation, problem=problem), tuple(columns))


def _columns_in_use(solution: Solution) -> Sequence[int]:
    in_use: list[int] = np.flatnonzero(solution.counts.sum(axis=0)).tolist()
    return in_use


def _request(model: ServedModel) -> WorkloadRequest:
    """Return a model's request with the objectives and the rate that its plan is for."""
    goals = model.objectives
    limits = {"ttft_max": goals.ttft_max, "tpot_max": goals.tpot_max, "percentile": goals.percentile}
    return replace(model.request, workload=replace(model.request.workload, **limits, rate=model.traffic.peak))


def _of_degree(request: WorkloadRequest, tp: int) -> WorkloadRequest:
    workload = replace(request.workload, parallel=Parallel(tp=tp))
    return replace(request, workload=workload, stated=request.stated | {"parallel"})
