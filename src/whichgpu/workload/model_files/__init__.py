"""Files that describe a model: config.json, GGUF and safetensors headers, the Hugging Face cache."""
