"""The answers are in the groups."""


def generate(self, prompts, sampling_params):
    groups = [self.add_request(prompt, params) for prompt, params in zip(prompts, sampling_params, strict=True)]
    while self.scheduler.has_unfinished_seqs():
        self.step()
    self.answers = [seq.output_token_ids for group in groups for seq in group.get_seqs()]
