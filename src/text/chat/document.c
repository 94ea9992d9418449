/* docs/chat.md. */
#include "text/chat/chat.h"
#include "text/template/jinja.h"

static void print_rows(FILE *out) {
    fputs(
        "# Supervised data and chat templates\n\n"
        "Made by `ballast help templates > docs/chat.md`; a test compares.\n\n"
        "A `.jsonl` file whose first line has the keys of one of these forms holds supervised examples, one a line; "
        "all "
        "of\n"
        "its lines must be of that form. `--columns` names other keys: `--columns "
        "prompt=question,completion=answer`.\n\n"
        "- `{\"prompt\": \"...\", \"completion\": \"...\"}`: one text, encoded as one (with the tokens that the "
        "tokenizer's\n"
        "  template adds), and the end token (docs/data.md) behind it. The completion and the end are trained on.\n"
        "- `{\"messages\": [{\"role\": \"...\", \"content\": \"...\"}, ...]}`: rendered by the model's chat\n"
        "  template as `transformers`' `apply_chat_template` does. The assistant's turns are trained on, each once: "
        "what\n"
        "  `{% generation %}` blocks make, where the template has them; else what the template appends for the turn "
        "to\n"
        "  the messages before it and `add_generation_prompt`, the mark at its end included. The assistant's own "
        "words\n"
        "  and the tags of its thoughts are trained on also where the generation prompt gives them. Words are found "
        "by\n"
        "  marks in the messages, not by what they are; a template that leaves it open where a turn begins or ends is\n"
        "  refused and needs `{% generation %}` blocks. Turns that a template renders otherwise once others follow\n"
        "  (without their thoughts) get an example of their own, with the conversation up to them.\n"
        "- `{\"prompt\": [...], \"completion\": [...]}`, both lists of messages: one conversation, of which the "
        "completion's turns\n"
        "  are trained on.\n"
        "- `{\"conversations\": [{\"from\": \"human\", \"value\": \"...\"}, {\"from\": \"gpt\", ...}]}`, ShareGPT's "
        "form: the same as\n"
        "  `messages`. Roles are `human`, `user`; `gpt`, `chatgpt`, `assistant`, `model`, `bot`; `system`; "
        "`developer`; `tool`,\n"
        "  `observation`; and `function_call`, whose value is JSON text of `{\"name\", \"arguments\"}` or a list of "
        "them. Other keys\n"
        "  of a turn (`tool_calls`) go to the template. `conversations` may also hold messages with `role` and "
        "`content`.\n"
        "- `{\"instruction\": \"...\", \"input\": \"...\", \"output\": \"...\"}`, Alpaca's form (`input` may be "
        "missing or empty). With a\n"
        "  chat template it is a conversation whose question is the instruction, an empty line and the input, and "
        "`history`\n"
        "  (pairs of question and answer) comes before it. Without one it is prompt and completion in the words of "
        "Alpaca\n"
        "  (\"Below is an instruction ...\"), whose first paragraph a `system` text replaces.\n"
        "- `{\"prompt\": \"...\", \"chosen\": \"...\", \"rejected\": \"...\"}`, with `--loss dpo`: the prompt with "
        "each of "
        "two\n"
        "  answers, of which the first is preferred. The prompt may be a list of messages and the answers lists of "
        "those\n"
        "  that follow it; or the answers are whole conversations, and the prompt is what both begin with. Only the "
        "last\n"
        "  turns, which the answer is, are trained on.\n\n",
        out);
}

static void print_keys(FILE *out) {
    fputs(
        "Besides the messages of any of these forms:\n\n"
        "| key | meaning |\n"
        "|---|---|\n"
        "| `tools` | JSON schemas of functions: a list, or JSON text of one |\n"
        "| `system` | a system prompt; it becomes the first message, and must agree with one that is there |\n"
        "| `chat_template_kwargs` | an object whose keys are variables of the template, such as "
        "`{\"reasoning_effort\": \"high\"}` |\n"
        "| `weight`, `train`, `training`, `loss` of an assistant's turn | 0 or false keeps the turn out of the loss, "
        "also with `--loss-on all` |\n"
        "\n"
        "Ballast refuses rows whose `images`, `image`, `videos`, `video`, `audios`, `audio`, `functions`, "
        "`function_call`,\n"
        "`weight`, `history` or `documents` would be lost, rows with `label: false` (unpaired preferences), and the "
        "three row keys\n"
        "above next to texts. Documents for a template go into `chat_template_kwargs`. Ballast logs every other key of "
        "any row that\n"
        "it does not read, and keys of messages and of `chat_template_kwargs` that the chat template does not name.\n"
        "\n",
        out);
}

static void print_sequences(FILE *out) {
    fputs(
        "`--loss-on all` trains on all tokens. The loss is the mean over the tokens of a step that are trained on. "
        "Where a\n"
        "border between what is and what is not trained on falls within a token, the token counts as of what follows.\n"
        "Ballast truncates examples longer than a sequence, and skips examples without a token to train "
        "on.\n"
        "A message counts both, and gives the `--seq` that truncates none (or the model's context, if shorter).\n"
        "\n"
        "Several examples share a sequence. Each attends to itself alone, at positions from 0, so its losses are as in "
        "a\n"
        "sequence of its own. The start of a run shows how full the sequences are:\n"
        "\n"
        "    chat.jsonl: 550 examples in 95 rows, 93% full\n"
        "\n"
        "`--packing off` gives each example a sequence of its own. A step of `--batch 8` then holds 8 examples; packed "
        "it holds\n"
        "8 shared sequences. `--valid-fraction` holds out the same examples either way. Preference pairs are never "
        "packed. A\n"
        "run that began without packing resumes without it. A plan file fixes packing only where `ballast plan` was "
        "given\n"
        "`--packing`.\n\n",
        out);
}

static void print_preferences(FILE *out) {
    fputs(
        "## Preferences\n\n"
        "`ballast train MODEL_DIR pairs.jsonl -o run --loss dpo --dpo-beta 0.1` learns from preferences by direct "
        "preference\n"
        "optimisation (arXiv 2305.18290), as TRL's `DPOTrainer` does (`tests/train/test_preference_reference.c`): the "
        "loss of\n"
        "a pair is -log sigmoid(margin), the margin the reward of the chosen answer less that of the rejected one, and "
        "an\n"
        "answer's reward beta times its log-probability less that under the model before training. These are computed "
        "once,\n"
        "for all pairs of the training and validation data, before the first step; `RUN_DIR/reference.safetensors` "
        "keeps\n"
        "them with hashes of the data and of themselves, so that a run that goes on needs neither the first model nor "
        "that\n"
        "pass again. With `--lora` or all weights. A pair takes two of the `--batch` sequences, and both lie in one "
        "micro-batch.\n"
        "Pairs of which an answer has nothing to train on within a sequence are left out. `metrics.jsonl` has "
        "`reward_chosen`,\n"
        "`reward_rejected`, `margin` and `accuracy`, the part of the pairs whose chosen answer has the larger reward; "
        "the same\n"
        "with `val_` of validations. `ballast eval run pairs.jsonl` gives them of a run's model, by the run's own loss "
        "and "
        "relative to\n"
        "the model that it began with; of any other model `--loss dpo --reference MODEL_DIR` does.\n\n"
        "Other losses of a pair are TRL's too, compared with it in the same test: `--dpo-loss hinge`, max(0, 1 - "
        "margin);\n"
        "`ipo` (arXiv 2310.12036), the square of how far the answers' gains a token, log-probability less that before\n"
        "training, are from being 1 / (2 beta) apart; `robust` (arXiv 2403.00409) with `--dpo-label-smoothing`, the "
        "part of\n"
        "the labels that is wrong. Of `sigmoid` label smoothing makes conservative DPO, as TRL did until it left it "
        "out.\n\n",
        out);
}

static void print_templates(FILE *out) {
    fputs(
        "## Chat templates\n\n"
        "`chat_template.jinja`, and `additional_chat_templates/tool_use.jinja` for conversations with tools. Without "
        "such\n"
        "files `chat_template` of `tokenizer_config.json`: a text, or a list of named ones, of which `default` is "
        "taken, and\n"
        "`tool_use` for conversations with tools. Templates render as with Jinja 3.1 in the "
        "environment\n"
        "that `transformers` 5 makes (`tests/chat/test_chat_template.c`). All that is not listed here is refused by "
        "name,\n"
        "with its line. `strftime_now` tells the date of `--chat-date`. Work, memory, output and depth are bounded.\n\n"
        "- statements: `if`, `for` (with `if`, `else`, `loop`, `break`, `continue`), `set` (of names, of a "
        "namespace's\n"
        "  fields, of a body), `macro`, `raw`, `generation`; white space control with `trim_blocks` and "
        "`lstrip_blocks`\n"
        "- expressions: all operators, comparisons in chains, conditionals, slices, literals of lists, tuples and "
        "dicts,\n"
        "  calls with keywords\n",
        out);
}

static void print_names(FILE *out, const char *title, enum jinja_names names) {
    const char *name;
    fprintf(out, "- %s: ", title);
    for (size_t i = 0; (name = jinja_name(names, i)); i++)
        fprintf(out, "%s`%s`", i == 0 ? "" : ", ", name);
    fputs("\n", out);
}

void chat_print_document(FILE *out) {
    print_rows(out);
    print_keys(out);
    print_sequences(out);
    print_preferences(out);
    print_templates(out);
    print_names(out, "filters", JINJA_FILTERS);
    print_names(out, "tests", JINJA_TESTS);
    print_names(out, "functions", JINJA_FUNCTIONS);
    print_names(out, "methods of strings", JINJA_STRING_METHODS);
    print_names(out, "methods of dicts", JINJA_DICT_METHODS);
}
