"""Kernels that PyTorch launches one by one in eager mode."""
