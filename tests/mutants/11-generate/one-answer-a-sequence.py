"""Every sequence is an answer."""

from refimpl.serving.plain_engine import Answer


def generate(self, prompts, sampling_params):
    groups = [self.add_request(prompt, params) for prompt, params in zip(prompts, sampling_params, strict=True)]
    while self.scheduler.has_unfinished_seqs():
        self.step()
    return [
        Answer([seq.output_token_ids], self.errors.get(group.request_id))
        for group in groups
        for seq in group.get_seqs()
    ]
