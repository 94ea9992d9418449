"""Check that peft loads an adapter that Ballast wrote, and merges it to what `ballast merge` made.

    check_peft.py ADAPTER_DIR MERGED_DIR

Exit status: 0 all weights agree within 1e-6 and logits within 1e-4, 1 they do not, 2 wrong usage.
"""

import sys

import peft
import torch
import transformers
from transformers import AutoModelForCausalLM


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    transformers.utils.logging.disable_progress_bar()
    settings = peft.PeftConfig.from_pretrained(sys.argv[1])
    adapted = peft.PeftModel.from_pretrained(load(settings.base_model_name_or_path), sys.argv[1]).eval()
    merged = load(sys.argv[2])
    ids = torch.randint(0, merged.config.vocab_size, (2, 16), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = (adapted(ids).logits - merged(ids).logits).abs().max().item()
    ours = merged.state_dict()
    weights = max((value - ours[name]).abs().max().item()
                  for name, value in adapted.merge_and_unload().state_dict().items())
    print(f"peft {peft.__version__}: weights differ by {weights:.1e} at most, logits by {logits:.1e}")
    return 0 if weights <= 1e-6 and logits <= 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
