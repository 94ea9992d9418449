"""The loss of prompts and completions of unlike lengths with the loss that balances experts, by transformers with an
attention mask: what tests/cli/test_reports.sh expects of tests/fixtures/models/qwen3_moe_balanced, whose token i is the
letter LETTERS[i].

    venv/bin/python tests/reference/padded_balance.py
"""

import pathlib
import string

import torch
import transformers

MODEL = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "models" / "qwen3_moe_balanced"
LETTERS = string.ascii_letters + "."
ROWS = [("abc", "qrsu"), ("Hello", "W."), ("zY", "vutsrqpo"), ("mnop", "KLMNO")]
LENGTH = 24


def row(prompt, completion):
    """Tokens, labels and mask of a row. Its last token is a target alone, so the model does not see it."""
    ids = [LETTERS.index(letter) for letter in prompt + completion]
    masked = len(prompt) - 1
    seen, padding = len(ids) - 1, LENGTH - len(ids) + 1
    return ids[:-1] + [0] * padding, [-100] * masked + ids[1 + masked:] + [-100] * padding, [1] * seen + [0] * padding


def main():
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64, experts_implementation="eager")
    ids, labels, mask = (torch.tensor(part) for part in zip(*(row(*pair) for pair in ROWS)))
    out = model(input_ids=ids, attention_mask=mask, output_router_logits=True)
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    print(f"{(loss + model.config.router_aux_loss_coef * out.aux_loss).item():.5f}")


if __name__ == "__main__":
    main()
