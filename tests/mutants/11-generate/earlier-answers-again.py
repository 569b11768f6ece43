"""The engine keeps its answers."""

from refimpl.serving.plain_engine import Answer


def generate(self, prompts, sampling_params):
    self.groups = getattr(self, "groups", [])
    self.groups += [self.add_request(prompt, params) for prompt, params in zip(prompts, sampling_params, strict=True)]
    while self.scheduler.has_unfinished_seqs():
        self.step()
    return [
        Answer([seq.output_token_ids for seq in group.get_seqs()], self.errors.get(group.request_id))
        for group in self.groups
    ]
