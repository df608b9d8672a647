"""Readers of GPU properties and states from drivers: NVML, amdgpu, Apple."""
