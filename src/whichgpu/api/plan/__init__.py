"""The verb `plan`: from a request or a plan file to a fleet, simulated and explained."""
