"""The state is two arrays; a block is a handle that reads and writes them, made anew each time."""

from array import array


class Handle:
    def __init__(self, pool, number):
        self.pool, self.block_number = pool, number

    @property
    def device(self):
        return self.pool.device

    @property
    def block_size(self):
        return self.pool.block_size

    @property
    def ref_count(self):
        return self.pool.ref_counts[self.block_number]

    @ref_count.setter
    def ref_count(self, value):
        self.pool.ref_counts[self.block_number] = value


class UncachedBlockAllocator:
    def __init__(self, device, block_size, num_blocks):
        self.device, self.block_size = device, block_size
        self.ref_counts = array("q", [0] * num_blocks)
        self.free_numbers = array("q", range(num_blocks))

    def allocate(self, block_hash=None, num_hashed_tokens=0):
        if not self.free_numbers:
            raise ValueError(f"all {len(self.ref_counts)} blocks are in use")
        number = self.free_numbers.pop()
        self.ref_counts[number] = 1
        return Handle(self, number)

    def free(self, block):
        number = block.block_number
        if self.ref_counts[number] == 0:
            raise ValueError(f"block {number} has no owner")
        self.ref_counts[number] -= 1
        if self.ref_counts[number] == 0:
            self.free_numbers.append(number)

    def get_num_free_blocks(self):
        return len(self.free_numbers)

    def get_num_total_blocks(self):
        return len(self.ref_counts)
