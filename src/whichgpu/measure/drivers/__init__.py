"""GPUs as their drivers describe them: NVML, amdgpu, Apple."""
