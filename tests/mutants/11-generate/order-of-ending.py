"""What has ended is an answer, and answers are collected as they come."""

from refimpl.serving.plain_engine import Answer


def generate(self, prompts, sampling_params):
    for prompt, params in zip(prompts, sampling_params, strict=True):
        self.add_request(prompt, params)
    groups = []
    while self.scheduler.has_unfinished_seqs():
        groups += self.step()
    return [
        Answer([seq.output_token_ids for seq in group.get_seqs()], self.errors.get(group.request_id))
        for group in groups
    ]
