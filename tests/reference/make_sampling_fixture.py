"""Make tests/fixtures/sampling.json: which tokens can be drawn from logits, and how likely each is.

    python3 -m venv venv && venv/bin/pip install numpy==2.4.6
    venv/bin/python tests/reference/make_sampling_fixture.py

What transformers 5.23.0 does (generation/logits_process.py), written in numpy, in fp32 as there:
RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper in this order, then
softmax; without sampling (temperature 0 here) the penalty alone, then argmax.
"""

import json
import pathlib

import numpy

VOCAB = 40
# penalty, temperature, top_k, top_p
CASES = [(1, 1, 0, 1), (1.3, 1, 0, 1), (0.7, 1, 0, 1), (1.05, 0.7, 20, 0.8), (1.2, 0, 0, 1), (1, 0, 0, 1),
         (1.1, 1.5, 5, 1), (1.1, 0.6, 0, 0.9), (2, 0.5, 3, 0.6), (1, 0.8, 1, 1), (10, 0, 0, 1), (1, 2, 0, 0.3)]


def softmax(scores):
    raised = numpy.exp(scores - scores.max())
    return raised / raised.sum()


def repetition(scores, ids, penalty):
    seen = scores[ids]
    scores = scores.copy()
    scores[ids] = numpy.where(seen < 0, seen * numpy.float32(penalty), seen / numpy.float32(penalty))
    return scores


def keep_top_k(scores, top_k):
    return numpy.where(scores < numpy.sort(scores)[-top_k], -numpy.inf, scores) if top_k else scores


def keep_top_p(scores, top_p):
    order = numpy.argsort(scores, kind="stable")
    removed = numpy.cumsum(softmax(scores[order])) <= numpy.float32(1 - top_p)
    removed[-1] = False
    scores = scores.copy()
    scores[order[removed]] = -numpy.inf
    return scores


def probabilities(logits, ids, penalty, temperature, top_k, top_p):
    scores = repetition(logits, ids, penalty)
    if temperature == 0:
        return (numpy.arange(VOCAB) == scores.argmax()).astype(numpy.float32)
    scores = keep_top_k(scores / numpy.float32(temperature), top_k)
    return softmax(keep_top_p(scores, top_p) if top_p < 1 else scores)


def case(number, settings):
    rng = numpy.random.default_rng(1000 + number)
    logits = (3 * rng.standard_normal(VOCAB)).astype(numpy.float32)
    ids = rng.integers(0, VOCAB, 12)
    ids[:2] = ids[2], logits.argmax()  # one token twice, and the likeliest
    return dict(zip(("repetition_penalty", "temperature", "top_k", "top_p"), settings),
                logits=[float(x) for x in logits], ids=ids.tolist(),
                probabilities=[float(f"{p:.7g}") for p in probabilities(logits, ids, *settings)])


def main():
    out = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "sampling.json"
    out.write_text(json.dumps({"cases": [case(i, settings) for i, settings in enumerate(CASES)]}) + "\n")


if __name__ == "__main__":
    main()
