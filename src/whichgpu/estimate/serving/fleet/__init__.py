"""Fleets: many servers, of several kinds, that share one stream of requests.

`stations` says what a fleet is; `loop` plays it event by event; `answer` tells it in figures.
"""

from whichgpu.estimate.serving.fleet.answer import FleetAnswer, fleet_answer
from whichgpu.estimate.serving.fleet.links import Port, port_of
from whichgpu.estimate.serving.fleet.loop import simulate_fleet
from whichgpu.estimate.serving.fleet.outcome import FleetOutcome
from whichgpu.estimate.serving.fleet.stations import Fleet, Interruptions, Role, Routing, Station

__all__ = [
    "Fleet",
    "FleetAnswer",
    "FleetOutcome",
    "Interruptions",
    "Port",
    "Role",
    "Routing",
    "Station",
    "fleet_answer",
    "port_of",
    "simulate_fleet",
]
