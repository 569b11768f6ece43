"""As many steps as the longest answer has tokens."""

from refimpl.serving.plain_engine import Answer


def generate(self, prompts, sampling_params):
    groups = [self.add_request(prompt, params) for prompt, params in zip(prompts, sampling_params, strict=True)]
    for _ in range(max(params.max_tokens for params in sampling_params)):
        self.step()
    return [
        Answer([seq.output_token_ids for seq in group.get_seqs()], self.errors.get(group.request_id))
        for group in groups
    ]
