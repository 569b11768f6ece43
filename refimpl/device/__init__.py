"""The tensors behind the block numbers: the KV cache and attention through block tables. torch starts here."""
