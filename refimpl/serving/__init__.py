"""A real model over the block manager: weights, tokenizer, forward pass, and the engine that runs requests."""
