"""Kernels of engines that fuse: vLLM and its like, compilers, llama.cpp."""
