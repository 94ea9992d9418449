"""Records what `transformers` makes of chat templates: tests/fixtures/chat/*.json.

    python make_chat_fixtures.py

The templates are in chat_templates.py (families) and chat_expressions.py (single rules). The versions are those of
requirements.txt, with the Jinja that they bring.
"""
import datetime
import json
import pathlib

from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from chat_expressions import EXPRESSIONS, VARIABLES, WHITESPACE
from chat_templates import CONVERSATIONS, FAMILIES

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
NOW = 1721997296  # 26 July 2024, 12:34:56 UTC
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
MARKS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "[INST]", "[/INST]"]


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)


chat_template_utils.datetime = FixedTime


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


def write(name, value):
    path = FIXTURES / "chat" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def main():
    templates = []
    for line in EXPRESSIONS.split("\n"):
        if templates and templates[-1].endswith("\\"):
            templates[-1] += "\n" + line
        else:
            templates.append(line)
    write("expressions.json", {"variables": VARIABLES, "cases": [render_expression(t) for t in templates + WHITESPACE]})
    families = [make_family(name, template) for name, template in FAMILIES.items()]
    write("families.json", {"now": NOW, "special": SPECIAL, "conversations": CONVERSATIONS, "families": families})
    # The tokenizer with its marks, as a model's folder has it.
    make_tokenizer("").backend_tokenizer.save(str(FIXTURES / "chat" / "tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main()
