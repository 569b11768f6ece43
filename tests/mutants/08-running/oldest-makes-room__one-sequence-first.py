"""A request of one sequence is cheaper to throw out."""


def _take_victim(self, queue, now):
    single = [seq_group for seq_group in queue if seq_group.num_unfinished_seqs() == 1]
    victim = (single or queue)[-1]
    queue.remove(victim)
    return victim
