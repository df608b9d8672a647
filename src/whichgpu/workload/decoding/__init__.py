"""How text is decoded: speculative decoding, and weights in host memory."""
