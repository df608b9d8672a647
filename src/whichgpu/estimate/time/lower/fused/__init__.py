"""Kernels of engines with kernel fusion: vLLM and similar engines, compilers, llama.cpp."""
