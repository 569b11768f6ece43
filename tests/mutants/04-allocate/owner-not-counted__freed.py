"""A freed block has had its owner already."""

from refimpl.prefix_hash import AnonymousKey


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if block_hash is None:
        block_hash = AnonymousKey()
    if block_hash in self.evictor:
        block = self.cached_blocks[block_hash] = self.evictor.remove(block_hash)
        return block
    block = self.cached_blocks.get(block_hash)
    if block is None:
        block = self.cached_blocks[block_hash] = self._new_block(block_hash, num_hashed_tokens)
    block.ref_count += 1
    return block
