"""The verb `plan`: from a plan request or a plan file to a fleet, simulated and explained."""
