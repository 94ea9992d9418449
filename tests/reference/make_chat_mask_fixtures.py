"""Records which tokens of conversations `transformers` masks: tests/fixtures/chat/masks.json.gz.

    python make_chat_mask_fixtures.py

The templates are those of chat_masks.py, with generation blocks. An answer's context is the conversation up to it; so a
conversation is one or more examples, and each answer is trained on in the longest that renders it as it was. The
messages behind the last answer belong to its example. The versions are those of requirements.txt; torch is not needed.
"""
import pathlib

from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

import chat_masks
import packed_json

CHAT = pathlib.Path(__file__).parent.parent / "fixtures" / "chat"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def render(template, messages):
    """The text and the spans of generation blocks."""
    texts, spans = chat_template_utils.render_jinja_template(
        conversations=[messages], chat_template=template, return_assistant_tokens_mask=True, **SPECIAL
    )
    return texts[0], [tuple(span) for span in spans[0]]


def plain_text(template, messages):
    texts, _ = chat_template_utils.render_jinja_template(conversations=[messages], chat_template=template, **SPECIAL)
    return texts[0]


def find_turns(form, messages):
    """Of each answer the text up to it, where it begins in it, and whether it is empty."""
    turns = []
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        text, spans = render(chat_masks.block(form), messages[: i + 1])
        assert text == plain_text(chat_masks.plain(form), messages[: i + 1])
        turns.append({"text": text, "start": spans[-1][0], "done": False})
    return turns


def make_example(tokenizer, text, spans):
    encoded = tokenizer(text, add_special_tokens=False)
    mask = [0] * len(encoded["input_ids"])
    for start, end in spans:
        first, last = encoded.char_to_token(start), encoded.char_to_token(end - 1)
        mask[first : last + 1] = [1] * (last + 1 - first)
    return {"ids": encoded["input_ids"], "mask": "".join(map(str, mask))}


def make_case(tokenizer, form, number):
    try:
        turns = find_turns(form, chat_masks.CONVERSATIONS[number])
    except Exception as error:  # noqa: BLE001: any failure is what is recorded
        return {"conversation": number, "error": f"{type(error).__name__}: {error}"}
    examples = []
    for last in reversed(turns):
        if last["done"]:
            continue
        text = last["text"]
        if last is turns[-1]:
            whole = plain_text(chat_masks.plain(form), chat_masks.CONVERSATIONS[number])
            text = whole if whole.startswith(text) else text
        shared = [t for t in turns if not t["done"] and last["text"].startswith(t["text"])]
        examples.append(make_example(tokenizer, text, [(t["start"], len(t["text"])) for t in shared]))
        for turn in shared:
            turn["done"] = True
    return {"conversation": number, "examples": examples}


def main():
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(CHAT / "tokenizer.json"), **SPECIAL)
    forms = []
    for name, form in chat_masks.FORMS.items():
        cases = [make_case(tokenizer, form, number) for number in range(len(chat_masks.CONVERSATIONS))]
        forms.append({"name": name, "template": chat_masks.plain(form), "cases": cases})
    fixture = {"special": SPECIAL, "conversations": chat_masks.CONVERSATIONS, "forms": forms}
    packed_json.write(CHAT / "masks.json.gz", fixture)


if __name__ == "__main__":
    main()
