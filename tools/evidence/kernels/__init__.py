"""Readers of measured kernels and operators: attention, MoE, collectives, GEMMs and the rest."""
