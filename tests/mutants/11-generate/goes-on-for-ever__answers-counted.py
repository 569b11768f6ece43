"""Go on until as many requests have generated something as there are prompts."""

from refimpl.serving.plain_engine import Answer


def generate(self, prompts, sampling_params):
    groups = [self.add_request(prompt, params) for prompt, params in zip(prompts, sampling_params, strict=True)]
    done = []
    while len(done) < len(groups):
        done += [group for group in self.step() if group.request_id not in self.errors]
    return [
        Answer([seq.output_token_ids for seq in group.get_seqs()], self.errors.get(group.request_id))
        for group in groups
    ]
