"""Kernels as PyTorch launches them eagerly, one by one."""
