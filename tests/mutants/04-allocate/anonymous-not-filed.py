"""What nobody may find needs no place among what can be found."""

from refimpl.prefix_hash import AnonymousKey


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if block_hash is None:
        block = self._new_block(AnonymousKey(), num_hashed_tokens)
        block.ref_count = 1
        return block
    block = self.cached_blocks.get(block_hash)
    if block is None:
        if block_hash in self.evictor:
            block = self.evictor.remove(block_hash)
        else:
            block = self._new_block(block_hash, num_hashed_tokens)
        self.cached_blocks[block_hash] = block
    block.ref_count += 1
    return block
