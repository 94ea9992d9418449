"""A day of fine-tuning: Ballast trains a chat model that transformers made, and transformers and peft load the results.

    fine_tuning_day.py BALLAST DIRECTORY

The steps are those of a user: LoRA on chats, the report page, merge, chat, DPO from the adapter, Ctrl-C, and resume with
another learning rate. Each loss that Ballast reports is computed again by transformers, or by peft for adapters, in
fp32. DIRECTORY must not exist; it holds the models, the data and the runs afterwards. The packages are those of
requirements.txt.

Exit status: 0 every step is right, 1 a step is wrong (the last line names it), 2 wrong usage.
"""

import json
import os
import pathlib
import pty
import random
import re
import select
import subprocess
import sys
import time

import peft
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy, logsigmoid
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TOLERANCE = 1e-4  # relative difference of two losses of the same weights and tokens, both computed in fp32
LENGTH = 128
DPO_BETA = 0.1
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
PLACES = ["mill", "river", "bridge", "harbour", "market", "forest", "tower", "garden"]
THINGS = ["lantern", "kettle", "ladder", "basket", "violin", "hammer", "letter", "mirror"]


class Wrong(Exception):
    """A step has a result that is not right."""


def expect(right, message):
    if not right:
        raise Wrong(message)


def expect_same_loss(what, ours, theirs):
    difference = abs(ours - theirs) / abs(theirs)
    print(f"  {what}: Ballast {ours:.7f}, reference {theirs:.7f}, relative difference {difference:.1e} "
          f"({TOLERANCE:.0e} allowed)")
    expect(difference <= TOLERANCE, f"{what}: the losses differ")


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def message(role, content):
    return {"role": role, "content": content}


# ---- The data: questions about things, and three styles of answers.

STYLES = {"plain": "It is at the {place}.", "kind": "Look for the {thing} at the {place}, friend.",
          "rude": "At the {place}, of course."}


def make_turns(rng, *styles):
    thing, place = rng.choice(THINGS), rng.choice(PLACES)
    answers = [message("assistant", STYLES[style].format(thing=thing, place=place)) for style in styles]
    return message("user", f"Where is the {thing}?"), *answers


def make_chat(rng, style):
    return {"messages": [turn for _ in range(rng.randint(1, 2)) for turn in make_turns(rng, style)]}


def make_pair(rng):
    question, chosen, rejected = make_turns(rng, "kind", "rude")
    return {"prompt": [question], "chosen": [chosen], "rejected": [rejected]}


def make_data(place):
    rng = random.Random(7)
    write_rows(place / "pretraining.jsonl", [make_chat(rng, "plain") for _ in range(200)])
    write_rows(place / "chats.jsonl", [make_chat(rng, "kind") for _ in range(200)])
    write_rows(place / "valid.jsonl", [make_chat(rng, "kind") for _ in range(24)])
    write_rows(place / "pairs.jsonl", [make_pair(rng) for _ in range(48)])


# ---- The references.


def make_tokenizer(texts):
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    plain.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|pad|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def encode_chat(tokenizer, messages):
    """Ids, and whether the loss counts each: what the template adds for an assistant's turn to its generation prompt."""
    ids = tokenizer(render(tokenizer, messages), add_special_tokens=False)["input_ids"]
    counts = [False] * len(ids)
    for i, turn in enumerate(messages):
        if turn["role"] == "assistant":
            begin = len(encode_text(tokenizer, render(tokenizer, messages[:i], True)))
            end = len(encode_text(tokenizer, render(tokenizer, messages[:i + 1])))
            counts[begin:end] = [True] * (end - begin)
    return ids, counts


def render(tokenizer, messages, generation=False):
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation)


def encode_text(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def token_losses(model, ids, counts):
    """The negative log-probabilities of the tokens that count."""
    ids = torch.tensor([ids])
    losses = cross_entropy(model(ids).logits[0, :-1], ids[0, 1:], reduction="none")
    return losses[torch.tensor(counts[1:])]


def chat_loss(model, tokenizer, rows):
    with torch.no_grad():
        losses = torch.cat([token_losses(model, *encode_chat(tokenizer, row["messages"])) for row in rows])
    return losses.mean().item(), len(losses)


def dpo_loss(model, reference, tokenizer, rows):
    """Mean loss of DPO with sigmoid (Rafailov et al., equation 7)."""
    total = 0.0
    with torch.no_grad():
        for row in rows:
            gain = {}
            for answer in ("chosen", "rejected"):
                tokens = encode_chat(tokenizer, row["prompt"] + row[answer])
                gain[answer] = token_losses(reference, *tokens).sum() - token_losses(model, *tokens).sum()
            total -= logsigmoid(DPO_BETA * (gain["chosen"] - gain["rejected"])).item()
    return total / len(rows)


def load_model(folder):
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    faults = {kind: entries for kind, entries in report.items() if entries}
    expect(not faults, f"transformers loads {folder} with faults: {faults}")
    return model.eval()


def load_adapter(folder):
    base = peft.PeftConfig.from_pretrained(folder).base_model_name_or_path
    return peft.PeftModel.from_pretrained(load_model(base), folder).eval()


def make_model(place, tokenizer):
    """A small Llama with random weights that has learned a little of `pretraining.jsonl`."""
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = read_rows(place / "pretraining.jsonl")
    for step in range(50):
        loss = torch.cat([token_losses(model, *encode_chat(tokenizer, row["messages"]))
                          for row in rows[step * 8 % 200:][:8]]).mean()
        if step == 0:
            first = loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"  {sum(p.numel() for p in model.parameters()):,} parameters, loss {first:.4f} before, {loss.item():.4f} after")
    model.save_pretrained(place / "model")
    tokenizer.save_pretrained(place / "model")


# ---- Ballast, run as a user runs it.


class Ballast:
    def __init__(self, program, place):
        self.program, self.place = program, place
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(place / "cache"), TERM="dumb")

    def __call__(self, *words, text=None):
        print("  $ ballast", *words)
        done = subprocess.run([self.program, *words], cwd=self.place, env=self.environment, input=text, text=True,
                              capture_output=True, check=False)
        expect(done.returncode == 0, f"ballast {words[0]}: exit status {done.returncode}: {done.stderr}")
        return done.stdout

    def loss(self, model, data, *words):
        return json.loads(self("eval", model, data, "--seq", str(LENGTH), "--dtype", "fp32", "--json", *words))["total"]

    def at_terminal(self, *words):
        print("  $ ballast", *words)
        return Terminal([self.program, *words], self.place, self.environment)


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, command, folder, environment):
        self.shown = ""
        self.process, self.handle = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execve(command[0], command, environment)

    def type(self, text):
        os.write(self.handle, text.encode())

    def read(self):
        """Takes up what the command showed within a tenth of a second; False: it has closed the terminal."""
        if select.select([self.handle], [], [], 0.1)[0]:
            try:
                data = os.read(self.handle, 1 << 16)
            except OSError:
                return False
            self.shown += data.decode(errors="replace")
            return bool(data)
        return True

    def wait_for(self, condition, what):
        while not condition():
            expect(self.read() or condition(), f"the command ended before {what}: {self.shown}")

    def finish(self):
        while self.read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def read_steps(run):
    path = run / "metrics.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [row for row in map(json.loads, lines) if "loss" in row]


# ---- The day.


def check_adapter_run(ballast, place, tokenizer):
    ballast("train", "model", "chats.jsonl", "--valid", "valid.jsonl", "-o", "sft", "--lora", "8,16,all-linear",
            "--steps", "60", "--batch", "8", "--seq", str(LENGTH), "--lr", "1e-2", "--valid-every", "20",
            "--dtype", "fp32")
    steps = read_steps(place / "sft")
    ours = ballast.loss("sft", "valid.jsonl")
    theirs, tokens = chat_loss(load_adapter(place / "sft" / "model"), tokenizer, read_rows(place / "valid.jsonl"))
    print(f"  loss {steps[0]['loss']:.4f} at step 1, {steps[-1]['loss']:.4f} at step {len(steps)}")
    expect(len(steps) == 60 and steps[-1]["loss"] < steps[0]["loss"] / 2, "LoRA learned nothing")
    expect(ours["tokens"] == tokens, f"Ballast counts {ours['tokens']} tokens, the reference {tokens}")
    expect_same_loss("the adapter in peft", ours["loss"], theirs)
    return ours["loss"]


def check_page(ballast, place):
    ballast("report", "sft")
    html = (place / "sft" / "report.html").read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S).group(1))
    steps, metrics = read_steps(place / "sft"), data["metrics"]
    rows = [json.loads(line) for line in (place / "sft" / "metrics.jsonl").read_text().splitlines()]
    validations = [row["val_loss"] for row in rows if row.get("val_loss") is not None]
    curve = metrics["curves"]["loss"]
    print(f"  {len(html) >> 10} KiB, state {data['end']['state']}, {metrics['step']} steps, loss "
          f"{metrics['last']['loss']}, val_loss {metrics['last']['val_loss']}")
    expect(data["end"]["state"] == "finished" and data["name"] == "sft", "the page shows another state or run")
    expect(curve["step"] == [row["step"] for row in steps], "the page's curve has other steps")
    for ours, theirs in zip(curve["mean"] + [metrics["last"]["val_loss"], metrics["min_val_loss"]],
                            [row["loss"] for row in steps] + [validations[-1], min(validations)], strict=True):
        expect(abs(ours - theirs) < 1e-6 * theirs, f"the page shows a loss of {ours} for {theirs}")
    expect(not re.search(r"(src|href)=[\"']?https?:", html), "the page loads from the network")


def check_merge(ballast, place, tokenizer, adapter_loss):
    ballast("merge", "sft", "-o", "merged")
    theirs, _ = chat_loss(load_model(place / "merged"), AutoTokenizer.from_pretrained(place / "merged"),
                          read_rows(place / "valid.jsonl"))
    expect_same_loss("the merged model in transformers", ballast.loss("merged", "valid.jsonl")["loss"], theirs)
    expect_same_loss("the adapter, and the merged model in transformers", adapter_loss, theirs)
    expect(tokenizer.chat_template == AutoTokenizer.from_pretrained(place / "merged").chat_template,
           "the merged model has another chat template")


def check_chat(ballast, place):
    question, settings = "Where is the kettle?", ["--temperature", "0", "--dtype", "fp32", "--seq", str(LENGTH)]
    tokenizer = AutoTokenizer.from_pretrained(place / "merged")
    ids = encode_text(tokenizer, render(tokenizer, [message("user", question)], True))
    written = load_model(place / "merged").generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)
    theirs = tokenizer.decode(written[0, len(ids):], skip_special_tokens=True)
    piped = ballast("chat", "merged", *settings, text=question + "\n")
    terminal = ballast.at_terminal("chat", "merged", *settings)
    terminal.wait_for(lambda: terminal.shown.count(">>> ") == 1, "it asked")
    terminal.type(question + "\n")
    terminal.wait_for(lambda: theirs in terminal.shown and terminal.shown.rstrip().endswith(">>>"), "it answered")
    terminal.type("/exit\n")
    status = terminal.finish()
    print(f"  {question} {piped.strip()} (transformers: {theirs})")
    expect(piped.strip() == theirs, "the piped answer is not transformers'")
    expect(status == 0, f"chat ended with status {status}: {terminal.shown}")


def check_dpo_is_interrupted(ballast, place):
    terminal = ballast.at_terminal(
        "train", "sft/model", "pairs.jsonl", "-o", "dpo", "--loss", "dpo", "--dpo-beta", str(DPO_BETA), "--steps",
        "1000000", "--schedule", "constant", "--warmup-steps", "0", "--lr", "1e-4", "--batch", "8", "--seq",
        str(LENGTH), "--dtype", "fp32")
    terminal.wait_for(lambda: len(read_steps(place / "dpo")) >= 5, "five steps")
    terminal.type("\x03")
    status = terminal.finish()
    done = len(read_steps(place / "dpo"))
    print(f"  Ctrl-C: exit status {status} after {done} steps")
    expect(status == 130, f"exit status {status}, not 130: {terminal.shown}")
    expect("ballast resume dpo" in terminal.shown, f"no hint how to resume: {terminal.shown}")
    return done


def check_resume(ballast, place, tokenizer, done):
    ballast("resume", "dpo", "--steps", str(done + 60), "--lr", "1e-3")
    steps = read_steps(place / "dpo")
    rates = [row["lr"] for row in steps]
    print(f"  {len(steps)} steps, learning rate {rates[0]:g} to step {done}, {rates[-1]:g} from there")
    expect([row["step"] for row in steps] == list(range(1, done + 61)), "steps are missing or twice there")
    expect(all(abs(rate - (1e-4 if i < done else 1e-3)) < 1e-9 for i, rate in enumerate(rates)),
           f"the learning rates are {rates}")
    ours = ballast.loss("dpo", "pairs.jsonl")["loss"]
    theirs = dpo_loss(load_adapter(place / "dpo" / "model"), load_adapter(place / "sft" / "model"), tokenizer,
                      read_rows(place / "pairs.jsonl"))
    expect(ours < steps[0]["loss"], "DPO learned nothing")
    expect_same_loss("the DPO adapter in peft", ours, theirs)


def run_day(program, place):
    ballast = Ballast(program, place)
    print("A chat model, made by transformers", transformers.__version__)
    make_data(place)
    tokenizer = make_tokenizer([turn["content"] for name in ("pretraining", "chats")
                                for row in read_rows(place / f"{name}.jsonl") for turn in row["messages"]])
    make_model(place, tokenizer)
    theirs, _ = chat_loss(load_model(place / "model"), tokenizer, read_rows(place / "valid.jsonl"))
    expect_same_loss("the base model in transformers", ballast.loss("model", "valid.jsonl")["loss"], theirs)
    print("LoRA on chats")
    adapter_loss = check_adapter_run(ballast, place, tokenizer)
    print("The report page")
    check_page(ballast, place)
    print("Merge")
    check_merge(ballast, place, tokenizer, adapter_loss)
    print("Chat, piped and at a terminal")
    check_chat(ballast, place)
    print("DPO on the adapter, until Ctrl-C")
    done = check_dpo_is_interrupted(ballast, place)
    print("Resume with another learning rate")
    check_resume(ballast, place, tokenizer, done)


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, place = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    place.mkdir()
    begin = time.monotonic()
    try:
        run_day(str(program), place)
    except Wrong as fault:
        print(f"FAILED: {fault}")
        return 1
    print(f"PASSED in {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
