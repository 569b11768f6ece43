"""A queue: the block that has been free for longest goes out next."""

from collections import deque

from refimpl import PhysicalTokenBlock


class UncachedBlockAllocator:
    def __init__(self, device, block_size, num_blocks):
        self.num_blocks = num_blocks
        self.queue = deque(PhysicalTokenBlock(device, number, block_size) for number in range(num_blocks))

    def allocate(self, block_hash=None, num_hashed_tokens=0):
        try:
            block = self.queue.popleft()
        except IndexError:
            raise ValueError("nothing is free") from None
        block.ref_count += 1
        return block

    def free(self, block):
        match block.ref_count:
            case 0:
                raise ValueError("nobody holds it")
            case 1:
                self.queue.append(block)
        block.ref_count -= 1

    def get_num_free_blocks(self):
        return len(self.queue)

    def get_num_total_blocks(self):
        return self.num_blocks
