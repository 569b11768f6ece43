"""The swap space is there for whoever is swapped."""


def can_swap_out(self, group):
    return len(self._distinct_blocks(group)) <= self.num_total_cpu_blocks
