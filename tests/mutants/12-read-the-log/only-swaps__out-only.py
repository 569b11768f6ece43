"""To be sent away is to be swapped out."""


def short_stays(self, within):
    found, came_in = {}, {}
    for step, decisions in enumerate(self.steps):
        for decision in decisions:
            name = decision.request_id
            if decision.action in ("prefill", "swap in"):
                came_in[name] = step
            elif decision.action == "swap out" and name in came_in and step - came_in.pop(name) <= within:
                found[name] = found.get(name, 0) + 1
            elif decision.action == "recompute":
                came_in.pop(name, None)
    return found
