"""Configs that people already have (serve commands, compose files, training configs), read as workloads."""
