"""Which tokens of conversations are trained on: templates in the form of published ones, in words of their own.

`{[` and `]}` stand where a generation block would begin and end: what the assistant must write. With the blocks
`transformers` makes the mask; the product is given the template without them.
"""

FORMS = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}{% if m['role'] == 'assistant' %}{[{{ m['content'] + '<|im_end|>\\n' }}]}{% else %}{{ m['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    # The system prompt is in the first of the user's turns.
    "llama2": "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% set first = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}{% else %}{% set rest = messages %}{% set first = '' %}{% endif %}{% for m in rest %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + (first if loop.first else '') + m.content.strip() + ' [/INST]' }}{% else %}{[{{ ' ' + m.content.strip() + ' ' + eos_token }}]}{% endif %}{% endfor %}",
    "llama3": "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}{% if m.role == 'assistant' %}{[{{ m.content | trim + '<|eot_id|>' }}]}{% else %}{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    "mistral01": "{{ bos_token }}{% for m in messages if m.role != 'system' %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns must alternate') }}{% endif %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{[{{ m.content + eos_token }}]}{% endif %}{% endfor %}",
    # The system prompt is in the last of the user's turns: where the model has answered, it is nowhere.
    "mistral03": "{{ bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}{% if m.role == 'user' %}{% if loop.last and system is defined %}{{ '[INST] ' + system + '\\n\\n' + m.content + '[/INST]' }}{% else %}{{ '[INST] ' + m.content + '[/INST]' }}{% endif %}{% elif m.role == 'assistant' %}{[{{ ' ' + m.content | trim + eos_token }}]}{% endif %}{% endfor %}",
    "nemo": "{{ bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}{% if m.role == 'user' %}{{ '[INST]' }}{% if loop.last and system is defined %}{{ system + '\\n\\n' }}{% endif %}{{ m.content + '[/INST]' }}{% else %}{[{{ m.content + eos_token }}]}{% endif %}{% endfor %}",
    "zephyr": "{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}{% if m.role == 'assistant' %}{[{{ m.content + eos_token + '\\n' }}]}{% else %}{{ m.content + eos_token + '\\n' }}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}{% endfor %}",
    # What has no generation prompt ends with the end of the text, which is trained on too.
    "phi3": "{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}{% if m.role == 'assistant' %}{[{{ m.content + '<|end|>\\n' }}]}{% else %}{{ m.content + '<|end|>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}",
    # Thoughts stay in turns after the last question.
    "qwen3": "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% set content = m.content %}{% set thoughts = '' %}{% if m.reasoning_content is string %}{% set thoughts = m.reasoning_content %}{% elif '</think>' in content %}{% set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{[{% if loop.index0 > ns.last and (loop.last or thoughts) %}{{ '<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}{% else %}{{ content }}{% endif %}{{ '<|im_end|>\\n' }}]}{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    # The same, and the generation prompt begins the thoughts.
    "qwen3_thinking": "",
    # Words as they are, and the generation prompt begins the thoughts.
    "qwq": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% set content = m.content if loop.last else m.content.split('</think>')[-1].lstrip('\\n') %}{[{{ content + '<|im_end|>\\n' }}]}{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}",
    "gemma": "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\\n\\n' %}{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}{% if m.role == 'assistant' %}{[{{ m.content | trim + '<end_of_turn>\\n' }}]}{% else %}{{ (first if loop.first else '') + m.content | trim + '<end_of_turn>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    # Thoughts are never kept, and the generation prompt begins them.
    "deepseek": "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}{{ '<\uff5cUser\uff5c>' + m.content }}{% else %}{{ '<\uff5cAssistant\uff5c>' }}{% set content = m.content %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{[{{ content + '<\uff5cend\uff5c>' }}]}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c><think>\\n' }}{% endif %}",
    "alpaca": "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}{% elif m.role == 'user' %}{{ '### Instruction:\\n' + m.content.strip() + '\\n\\n' }}{% else %}{{ '### Response:\\n' }}{[{{ m.content + eos_token }}]}{{ '\\n\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}",
    "command_r": "{{ bos_token }}{% for m in messages %}{{ '<|TURN|><|' + {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}[m.role] + '_TOKEN|>' }}{% if m.role == 'assistant' %}{[{{ m.content.strip() + '<|END_TOKEN|>' }}]}{% else %}{{ m.content.strip() + '<|END_TOKEN|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|TURN|><|CHATBOT_TOKEN|>' }}{% endif %}",
    "vicuna": "{% if messages[0].role == 'system' %}{{ messages[0].content + ' ' }}{% set rest = messages[1:] %}{% else %}{{ 'They talk. ' }}{% set rest = messages %}{% endif %}{% for m in rest %}{% if m.role == 'user' %}{{ 'USER: ' + m.content + ' ' }}{% else %}{{ 'ASSISTANT:' }}{[{{ ' ' + m.content + eos_token }}]}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
    # No marks but ends.
    "dialogpt": "{% for m in messages %}{% if m.role == 'assistant' %}{[{{ m.content + eos_token }}]}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
}
FORMS["qwen3_thinking"] = FORMS["qwen3"].replace("'<|im_start|>assistant\\n' }}{% endif %}", "'<|im_start|>assistant\\n<think>\\n' }}{% endif %}")


def block(template):
    """The template with generation blocks."""
    return template.replace("{[", "{% generation %}").replace("]}", "{% endgeneration %}")


def plain(template):
    return template.replace("{[", "").replace("]}", "")


def talk(*contents, system=None, thoughts=None):
    messages = [{"role": "system", "content": system}] if system else []
    for i, content in enumerate(contents):
        messages.append({"role": "assistant" if i % 2 else "user", "content": content})
    if thoughts:
        messages[-1]["reasoning_content"] = thoughts
    return messages


# Contents that begin and end like what stands about them, which are the accidents that hide a border.
CONVERSATIONS = [
    talk("Where does it run?", "Under the bridge."),
    talk("u1", "a1", "u2", "a2", "u3"),
    talk("And then?", "On.", system="Answer in short."),
    talk("Sure. Say it", "said", "Sure", "Sure.", system="Sure. Be kind."),
    talk("u", "  indented\n", "\n v \n", "\n\nlast  ", system="s"),
    talk("[INST] what [/INST]", "[/INST] that"),
    talk("x", "<b>bold</b> <|", "y", "<t>", system="<"),
    talk("why", "<think>\nBecause.\n</think>\n\nSo."),
    talk("why", "<think>One.</think>Two", "and", "<think>\n3\n</think>\n\n<think>", system="think"),
    talk("why", "So.", thoughts="Because\n"),
    talk("u1", "a1", "u2", "", system="s"),
    talk("\u00dcber die Br\u00fccke?", "\u65e5\u672c\u8a9e \U0001f642", "\u65e5", "\u65e5\u672c", system="\u65e5"),
    talk("assistant\n", "assistant\n", "### Response:\n", "### Response:\nhere", "USER: ", " ASSISTANT: x"),
]
