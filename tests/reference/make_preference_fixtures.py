"""Records what TRL's DPO makes of preferences: tests/fixtures/preferences/*.

    python make_preference_fixtures.py

The model and the tokenizer are those of tests/fixtures/chat (make_chat_fixtures.py). Each step takes all pairs, so their
order is of no matter. The versions are those of requirements.txt.
"""
import json
import pathlib
import tempfile

import torch
import trl
from datasets import Dataset
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
FOLDER = FIXTURES / "preferences"
SETTINGS = {"steps": 10, "lr": 5e-4, "epsilon": 1e-6, "weight_decay": 0.1, "clip_norm": 1.0, "beta": 0.2, "length": 64}
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}{{ m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
ANSWERS = [
    ("Where?", "Under the bridge.", "No."),
    ("And then?", "On.", "It ends."),
    ("Who?", "A child.", "Nobody at all."),
    ("How old?", "Older than the road.", "Old."),
]


def make_chats():
    lines = []
    for question, chosen, rejected in ANSWERS:
        prompt = [{"role": "user", "content": question}]
        if question == "And then?":
            prompt[:0] = [{"role": "user", "content": "So?"}, {"role": "assistant", "content": "It is."}]
        if question == "Who?":
            prompt[:0] = [{"role": "system", "content": "Say."}]
        lines.append({"prompt": prompt, "chosen": [{"role": "assistant", "content": chosen}],
                      "rejected": [{"role": "assistant", "content": rejected}]})
    return lines


def make_texts():
    return [{"prompt": f"Q: {question}\nA:", "chosen": f" {chosen}", "rejected": f" {rejected}"}
            for question, chosen, rejected in ANSWERS]


def make_tokenizer():
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(FIXTURES / "chat" / "tokenizer.json"))
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(0)  # of the model's config
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(1)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_optimizer(model):
    """As tests train: matrices decay."""
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": SETTINGS["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=SETTINGS["lr"], betas=(0.9, 0.95), eps=SETTINGS["epsilon"])


def check_lengths(lines):
    """None is cut."""
    tokenizer = make_tokenizer()
    for line in lines:
        for answer in (line["chosen"], line["rejected"]):
            if isinstance(answer, str):
                ids = tokenizer(line["prompt"] + answer)["input_ids"]
            else:
                ids = tokenizer.apply_chat_template(line["prompt"] + answer, tokenize=True, return_dict=True)["input_ids"]
            assert len(ids) < SETTINGS["length"], len(ids)


def train(lines, loss="sigmoid", smoothing=0.0, together=True):
    """Not together: pair by pair, added up before the update."""
    torch.manual_seed(1)
    model = LlamaForCausalLM.from_pretrained(FIXTURES / "chat" / "model", dtype=torch.float32)
    optimizer = make_optimizer(model)
    with tempfile.TemporaryDirectory() as folder:
        config = trl.DPOConfig(
            output_dir=folder, beta=SETTINGS["beta"], max_steps=SETTINGS["steps"], learning_rate=SETTINGS["lr"],
            loss_type=loss, label_smoothing=smoothing, per_device_train_batch_size=len(lines) if together else 1,
            gradient_accumulation_steps=1 if together else len(lines), max_length=SETTINGS["length"], logging_steps=1, report_to="none",
            save_strategy="no", lr_scheduler_type="constant", max_grad_norm=SETTINGS["clip_norm"], use_cpu=True,
            bf16=False, gradient_checkpointing=False,
        )  # fmt: skip
        trainer = trl.DPOTrainer(model=model, args=config, train_dataset=Dataset.from_list(lines),
                                 processing_class=make_tokenizer(),
                                 optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)))
        trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == SETTINGS["steps"]
    names = {"loss": "loss", "chosen": "rewards/chosen", "rejected": "rewards/rejected",
             "accuracy": "rewards/accuracies", "grad_norm": "grad_norm"}
    return {name: [step[key] for step in steps] for name, key in names.items()}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    cases = {"chats": make_chats(), "texts": make_texts()}
    expected = {"settings": SETTINGS, "trl": trl.__version__, "template": TEMPLATE}
    for name, lines in cases.items():
        (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        check_lengths(lines)
        expected[name] = train(lines)
    expected["losses"] = [
        {"loss": "hinge", "smoothing": 0, "texts": train(cases["texts"], "hinge")},
        {"loss": "ipo", "smoothing": 0, "texts": train(cases["texts"], "ipo")},
        {"loss": "robust", "smoothing": 0.1, "texts": train(cases["texts"], "robust", 0.1)},
        # TRL smooths no sigmoid; aot sorts the pairs of a batch and then is conservative DPO: that of one pair.
        {"loss": "sigmoid", "smoothing": 0.2, "texts": train(cases["texts"], "aot", 0.2, together=False)},
    ]
    (FOLDER / "losses.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
