"""Linear and mixed-integer programs built row by row, and solved with HiGHS."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from whichgpu.decide.plan.solver.problem import Floats

INFINITE = 1e30  # HiGHS treats this as no bound.
FEASIBLE = 2  # HiGHS's status code of a feasible primal solution.


class ProgramResult(msgspec.Struct, frozen=True):
    """A solved program: values of its variables, duals of rows and variables, the objective, and its proven bound."""

    values: Floats
    row_duals: Floats
    variable_duals: Floats
    objective: float
    bound: float


class LinearProgram:
    """A linear or mixed-integer program whose cost is minimised, built variable by variable and row by row."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.whole: list[bool] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.starts: list[int] = [0]
        self.places: list[int] = []
        self.values: list[float] = []

    def variable(self, cost: float, upper: float = INFINITE, whole: bool = False) -> int:
        """Add a variable from 0 to `upper`; return its index."""
        self.cost.append(cost)
        self.upper.append(min(upper, INFINITE))
        self.whole.append(whole)
        return len(self.cost) - 1

    def row(self, terms: list[tuple[int, float]], low: float, high: float) -> int:
        """Add a constraint low <= sum of terms (variable, factor) <= high; return its index."""
        for place, value in terms:
            self.places.append(place)
            self.values.append(value)
        self.starts.append(len(self.places))
        self.low.append(low)
        self.high.append(high)
        return len(self.low) - 1

    def _model(self, relaxed: bool) -> Any:
        import highspy

        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.cost), len(self.low)
        model.col_cost_ = np.array(self.cost)
        model.col_lower_, model.col_upper_ = np.zeros(len(self.cost)), np.array(self.upper)
        model.row_lower_, model.row_upper_ = np.array(self.low), np.array(self.high)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(self.starts, dtype=np.int32)
        model.a_matrix_.index_ = np.array(self.places, dtype=np.int32)
        model.a_matrix_.value_ = np.array(self.values)
        if not relaxed:
            kinds = highspy.HighsVarType
            model.integrality_ = [kinds.kInteger if one else kinds.kContinuous for one in self.whole]
        return model

    def solve(self, seconds: float, gap: float, start: dict[int, float] | None = None) -> ProgramResult | None:
        """Return a mixed-integer solution within a relative gap, from initial values `start`; None if none is found in time."""
        solver = _solver(seconds)
        solver.setOptionValue("mip_rel_gap", gap)
        solver.passModel(self._model(relaxed=False))
        if start:
            solver.setSolution(len(start), np.array(list(start), dtype=np.int32), np.array(list(start.values())))
        return _run(solver)

    def solve_below(self, ceiling: float, seconds: float) -> tuple[ProgramResult | None, float]:
        """Return the cheapest solution found that costs at most `ceiling`, and a lower bound on the cost of every solution."""
        import highspy

        solver = _solver(seconds)
        self.row([(place, cost) for place, cost in enumerate(self.cost) if cost], -INFINITE, ceiling)
        solver.passModel(self._model(relaxed=False))
        result = _run(solver)
        if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return None, ceiling
        return result, min(ceiling, float(solver.getInfo().mip_dual_bound))

    def relax(self, seconds: float = 10.0) -> ProgramResult | None:
        """Return the solution with all variables continuous, solved in at most `seconds`; None if it is infeasible."""
        solver = _solver(seconds)
        solver.passModel(self._model(relaxed=True))
        return _run(solver)


def _solver(seconds: float) -> Any:
    import highspy

    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", max(0.1, seconds))
    solver.setOptionValue("threads", 1)  # One thread gives the same answer on every machine.
    solver.setOptionValue("random_seed", 0)
    return solver


def _run(solver: Any) -> ProgramResult | None:
    solver.run()
    info, solution = solver.getInfo(), solver.getSolution()
    if info.primal_solution_status != FEASIBLE:
        return None
    values, row_duals, variable_duals = (np.array(one) for one in (solution.col_value, solution.row_dual, solution.col_dual))
    return ProgramResult(values, row_duals, variable_duals, float(info.objective_function_value), float(info.mip_dual_bound))
