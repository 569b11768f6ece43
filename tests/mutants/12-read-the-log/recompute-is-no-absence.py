"""A request that is recomputed waits as everybody does; absent is what was swapped out."""


def longest_absences(self):
    left, longest = {}, {}
    for step, decisions in enumerate(self.steps):
        for decision in decisions:
            name = decision.request_id
            if decision.action == "swap out":
                left[name] = step
            elif decision.action in ("swap in", "ignore") and name in left:
                longest[name] = max(longest.get(name, 0), step - left.pop(name))
    for name, step in left.items():
        longest[name] = max(longest.get(name, 0), len(self.steps) - step)
    return longest
