"""One set of sampling parameters serves for all."""

from refimpl.serving.plain_engine import Answer


def generate(self, prompts, sampling_params):
    groups = [self.add_request(prompt, sampling_params[0]) for prompt in prompts]
    while self.scheduler.has_unfinished_seqs():
        self.step()
    return [
        Answer([seq.output_token_ids for seq in group.get_seqs()], self.errors.get(group.request_id))
        for group in groups
    ]
