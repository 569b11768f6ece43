"""Go on until every request has all its tokens."""

from refimpl.serving.plain_engine import Answer


def generate(self, prompts, sampling_params):
    groups = [self.add_request(prompt, params) for prompt, params in zip(prompts, sampling_params, strict=True)]
    while (
        any(
            seq.get_output_len() < min(params.max_tokens, 2)
            for g, params in zip(groups, sampling_params, strict=True)
            for seq in g.get_seqs()
        )
        or self.scheduler.has_unfinished_seqs()
    ):
        self.step()
    return [
        Answer([seq.output_token_ids for seq in group.get_seqs()], self.errors.get(group.request_id))
        for group in groups
    ]
