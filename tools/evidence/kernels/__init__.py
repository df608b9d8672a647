"""Readers of measured kernels and operators: attention, mixtures of experts, collectives, GEMMs and the rest."""
