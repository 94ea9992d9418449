"""Check that transformers loads what Ballast wrote and computes the same logits.

    check_transformers.py MODEL_DIR LOGITS.safetensors

LOGITS.safetensors holds input_ids I32 [B,T] and logits F32 [B,T,V], as `ballast` computed them from MODEL_DIR in fp32.
Exit status: 0 the logits agree within 1e-4 and weights and tokenizer load whole, 1 they do not, 2 wrong usage.
"""

import pathlib
import sys

import safetensors.torch
import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

TOLERANCE = 1e-4


def load_model(folder):
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    faults = [f"{kind}: {', '.join(map(str, entries))}" for kind, entries in report.items() if entries]
    print(f"model       {type(model).__name__}, {sum(p.numel() for p in model.parameters()):,} parameters, "
          f"stored as {model.config.to_dict().get('dtype')}, compared in float32")
    return model.eval(), faults


def check_tokenizer(folder, ids, vocabulary):
    """AutoTokenizer must give the ids that tokenizer.json itself gives, for the text of the recorded ids."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    plain = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = plain.decode(ids.flatten().tolist(), skip_special_tokens=False)
    expected = plain.encode(text, add_special_tokens=False).ids
    found = tokenizer(text, add_special_tokens=False)["input_ids"]
    print(f"tokenizer   {type(tokenizer).__name__}, {len(tokenizer):,} tokens, {len(expected)} ids for the text "
          f"{text[:40]!r}...")
    faults = []
    if found != expected:
        faults.append("AutoTokenizer encodes otherwise than tokenizer.json (see tokenizer_config.json)")
    if len(tokenizer) > vocabulary:
        faults.append(f"the tokenizer has {len(tokenizer)} tokens, the model {vocabulary}")
    return faults


def check_logits(model, ids, ours):
    with torch.no_grad():
        theirs = model(input_ids=ids.long(), use_cache=False).logits
    if theirs.shape != ours.shape:
        return [f"logits are {list(ours.shape)}, transformers gives {list(theirs.shape)}"]
    difference = (theirs - ours).abs()
    same_choice = (theirs.argmax(-1) == ours.argmax(-1)).float().mean().item()
    print(f"logits      {' x '.join(map(str, ours.shape))}, standard deviation {theirs.std().item():.3g}")
    print(f"difference  {difference.max().item():.2e} at most, {difference.mean().item():.2e} on average, "
          f"{TOLERANCE:.0e} allowed; same likeliest token at {100 * same_choice:.1f}% of positions")
    # Written so that a NaN fails.
    return [] if difference.max().item() <= TOLERANCE else ["the logits differ by more than is allowed"]


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    folder, recorded = pathlib.Path(sys.argv[1]), safetensors.torch.load_file(sys.argv[2])
    transformers.utils.logging.disable_progress_bar()
    print(f"versions    transformers {transformers.__version__}, torch {torch.__version__}, "
          f"tokenizers {tokenizers.__version__}")
    print(f"directory   {folder}")
    ids, logits = recorded["input_ids"], recorded["logits"]
    model, faults = load_model(folder)
    faults += check_tokenizer(folder, ids, logits.shape[-1])
    faults += check_logits(model, ids, logits)
    for fault in faults:
        print(f"fault       {fault}")
    print("FAILED" if faults else "PASSED")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
