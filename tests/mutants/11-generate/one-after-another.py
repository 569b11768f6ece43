"""One prompt after the other."""

from refimpl.serving.plain_engine import Answer


def generate(self, prompts, sampling_params):
    answers = []
    for prompt, params in zip(prompts, sampling_params, strict=True):
        group = self.add_request(prompt, params)
        while self.scheduler.has_unfinished_seqs():
            self.step()
        answers.append(Answer([seq.output_token_ids for seq in group.get_seqs()], self.errors.get(group.request_id)))
    return answers
