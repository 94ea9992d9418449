"""Records what `transformers` makes of chat templates: tests/fixtures/chat.

    python make_chat_fixtures.py [--expressions]

The templates are in chat_templates.py (families) and chat_expressions.py (single rules). The versions are those of
requirements.txt, with the Jinja that they bring. With --expressions only those are made, for which torch is not
needed.
"""
import datetime
import json
import pathlib
import sys

from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

import packed_json
from chat_expressions import EXPRESSIONS, VARIABLES, WHITESPACE
from chat_templates import CONVERSATIONS, FAMILIES, TRAINED, TRAINED_CONVERSATIONS

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
NOW = 1721997296  # 26 July 2024, 12:34:56 UTC
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
MARKS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "[INST]", "[/INST]"]


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)


chat_template_utils.datetime = FixedTime
expressions_only = "--expressions" in sys.argv[1:]
if not expressions_only:
    import torch


def render_expression(template):
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        return {"template": template, "output": compiled.render(**VARIABLES)}
    except Exception as error:  # noqa: BLE001: any failure is what is recorded
        return {"template": template, "error": f"{type(error).__name__}: {error}"}


def make_tokenizer(template):
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(FIXTURES / "tokenizers" / "qwen2.json"), **SPECIAL)
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS})
    tokenizer.chat_template = template
    return tokenizer


def render_conversation(tokenizer, number, options):
    conversation = CONVERSATIONS[number]
    case = {"conversation": number, **options}
    arguments = {"tools": conversation.get("tools"), **options}
    try:
        case["output"] = tokenizer.apply_chat_template(conversation["messages"], tokenize=False, **arguments)
    except Exception as error:  # noqa: BLE001
        return {**case, "error": f"{type(error).__name__}: {error}"}
    mask = "generation %}" in tokenizer.chat_template or "generation -%}" in tokenizer.chat_template
    encoded = tokenizer.apply_chat_template(
        conversation["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=mask, **arguments
    )
    case["ids"] = encoded["input_ids"]
    if mask:
        case["mask"] = encoded["assistant_masks"]
    return case


def make_family(name, template):
    tokenizer = make_tokenizer(template)
    cases = []
    for number in range(len(CONVERSATIONS)):
        for generation in (False, True):
            options = {"add_generation_prompt": generation}
            cases.append(render_conversation(tokenizer, number, options))
            if "enable_thinking" in template:
                cases.append(render_conversation(tokenizer, number, {**options, "enable_thinking": False}))
                cases.append(render_conversation(tokenizer, number, {**options, "enable_thinking": True}))
    return {"name": name, "template": template, "cases": cases}


def make_model(folder, vocab_size):
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=False, initializer_range=0.2,
        bos_token_id=None, eos_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    return model


def make_batch(tokenizer, length):
    ids = torch.zeros(len(TRAINED_CONVERSATIONS), length, dtype=torch.long)
    targets = torch.full_like(ids, -100)
    for row, messages in enumerate(TRAINED_CONVERSATIONS):
        encoded = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        tokens, mask = torch.tensor(encoded["input_ids"]), torch.tensor(encoded["assistant_masks"])
        assert len(tokens) <= length
        ids[row, : len(tokens) - 1] = tokens[:-1]
        targets[row, : len(tokens) - 1] = torch.where(mask[1:] == 1, tokens[1:], -100)
    return ids, targets


def train(model, ids, targets, settings):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings["lr"], betas=(0.9, 0.95), eps=settings["epsilon"])
    losses = []
    for _ in range(settings["steps"]):
        logits = model(input_ids=ids).logits
        total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
        loss = total / (targets != -100).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])
        optimizer.step()
        losses.append(loss.item())
    return losses


def make_training():
    """A model's directory with a tokenizer, conversations, and the losses of full-batch steps on the assistant's turns."""
    torch.use_deterministic_algorithms(True)
    settings = {"steps": 15, "lr": 5e-3, "epsilon": 1e-6, "weight_decay": 0.1, "clip_norm": 1.0, "length": 60}
    tokenizer = make_tokenizer(TRAINED["generation"])
    folder = FIXTURES / "chat" / "model"
    model = make_model(folder, len(tokenizer) + 3)
    (folder / "generation_config.json").unlink(missing_ok=True)
    lines = [json.dumps({"messages": messages}, ensure_ascii=False) for messages in TRAINED_CONVERSATIONS]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")
    ids, targets = make_batch(tokenizer, settings["length"])
    losses = train(model, ids, targets, settings)
    trained = int((targets != -100).sum())
    about = {**settings, "trained_tokens": trained, "templates": TRAINED, "losses": losses}
    (folder / "losses.json").write_text(json.dumps(about, separators=(",", ":")) + "\n")


def main():
    templates = []
    for line in EXPRESSIONS.split("\n"):
        if templates and templates[-1].endswith("\\"):
            templates[-1] += "\n" + line
        else:
            templates.append(line)
    packed_json.write(FIXTURES / "chat" / "expressions.json.gz",
                      {"variables": VARIABLES, "cases": [render_expression(t) for t in templates + WHITESPACE]})
    if expressions_only:
        return
    families = [make_family(name, template) for name, template in FAMILIES.items()]
    packed_json.write(FIXTURES / "chat" / "families.json.gz",
                      {"now": NOW, "special": SPECIAL, "conversations": CONVERSATIONS, "families": families})
    # The tokenizer with its marks, as a model's directory has it.
    make_tokenizer("").backend_tokenizer.save(str(FIXTURES / "chat" / "tokenizer.json"), pretty=False)
    make_training()


if __name__ == "__main__":
    main()
