"""Command lines and files that start a training run: torchrun, accelerate, DeepSpeed, torchtitan, Megatron, or a job."""
