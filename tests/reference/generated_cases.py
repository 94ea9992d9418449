"""What transformers goes on with, greedily and in fp32, for every model that model_cases.py made.

models/CASE/generated.json: "prompt", of PROMPT token ids, and "tokens", the NEW ids after it; "margin" is the least
distance between the largest logit and the next, over all of them.
"""

import json

import numpy
import torch
import transformers
from transformers import AutoModelForCausalLM

from model_cases import VOCAB, names, seed_of

PROMPT, NEW = 9, 24


def continuation(folder, case):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    rng = numpy.random.default_rng(seed_of(case) + 2)
    prompt = torch.from_numpy(rng.integers(0, VOCAB, (1, PROMPT)))
    settings = transformers.GenerationConfig(max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=0,
                                             return_dict_in_generate=True, output_logits=True)
    model.generation_config = settings
    with torch.no_grad():
        found = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=settings)
    best = [logits[0].topk(2).values for logits in found.logits]
    return {"prompt": prompt[0].tolist(), "tokens": found.sequences[0, PROMPT:].tolist(),
            "margin": min((top[0] - top[1]).item() for top in best)}


def write(root, wanted):
    transformers.utils.logging.disable_progress_bar()
    for case in sorted(names()):
        if not wanted or case in wanted:
            about = continuation(root / case, case)
            print(f"{case}: {len(set(about['tokens']))} different tokens, margin {about['margin']:.1e}")
            (root / case / "generated.json").write_text(json.dumps(about) + "\n")
