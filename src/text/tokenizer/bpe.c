#include "text/tokenizer/bpe.h"

#include "base/hash.h"

static const uint32_t BPE_NO_PLACE = UINT32_MAX;

/* --- the alphabet of bytes, and the characters of a vocabulary --- */

static bool stands_for_itself(uint32_t code) {
    return (code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xFF && code != 0xAD);
}

/* The character of a byte. The bytes that do not stand for themselves are 0x00-0x20, 0x7F-0xA0 and 0xAD, numbered in
 * this order. */
static uint32_t byte_alphabet_code(unsigned char byte) {
    if (stands_for_itself(byte)) return byte;
    return byte <= 0x20 ? 0x100u + byte : byte == 0xAD ? 0x143u : 0x121u + (byte - 0x7Fu);
}

int byte_alphabet_byte(uint32_t code) {
    if (stands_for_itself(code)) return (int)code;
    if (code < 0x100 || code > 0x143) return -1;
    return code <= 0x120 ? (int)(code - 0x100) : code == 0x143 ? 0xAD : (int)(code - 0x121 + 0x7F);
}

/* Appends bytes as text of the alphabet. */
static enum status byte_alphabet_write(struct text_buffer *out, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        TRY(text_append_code(out, byte_alphabet_code((unsigned char)bytes[i])));
    return STATUS_OK;
}

enum status byte_alphabet_read(struct text_buffer *out, const char *text, size_t bytes) {
    size_t before = out->count;
    for (size_t place = 0, length; place < bytes; place += length) {
        int byte = byte_alphabet_byte(utf8_decode_valid(text + place, &length));
        if (byte < 0) {
            out->count = before;
            return text_append(out, text, bytes);
        }
        TRY(text_append(out, &(char){(char)byte}, 1));
    }
    return STATUS_OK;
}

enum { PAGE_CODES = 256 };

static size_t token_write(const struct bpe_alphabet *alphabet, uint32_t code, char out[4]) {
    return utf8_encode(alphabet->bytes ? byte_alphabet_code((unsigned char)code) : code, out);
}

static enum status character_add(struct bpe_alphabet *alphabet, uint32_t code, uint32_t id) {
    struct bpe_character **page = &alphabet->pages[code / PAGE_CODES];
    if (!*page) *page = mem_array(PAGE_CODES, sizeof **page);
    if (!*page) return STATUS_FAILED;
    (*page)[code % PAGE_CODES] = (struct bpe_character){.id = id, .known = true};
    return STATUS_OK;
}

/* The code of a token that is one character. */
static bool token_read(const struct bpe_alphabet *alphabet, const char *text, size_t bytes, uint32_t *code) {
    size_t length = 0;
    if (bytes == 0 || bytes > 4) return false;
    *code = utf8_decode_valid(text, &length);
    if (length != bytes || !alphabet->bytes) return length == bytes;
    int byte = byte_alphabet_byte(*code);
    *code = (uint32_t)byte;
    return byte >= 0;
}

static void byte_tokens_find(struct bpe_alphabet *alphabet, const struct string_table *vocabulary) {
    bool all = alphabet->byte_fallback;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[BYTE_TOKEN_BYTES + 1];
        uint32_t id;
        snprintf(text, sizeof text, "<0x%02X>", byte & 255);
        bool found = alphabet->byte_fallback && string_table_find(vocabulary, text, BYTE_TOKEN_BYTES, &id);
        alphabet->byte_ids[byte] = found ? (int64_t)id : BPE_NO_ID;
        all &= found;
    }
    alphabet->all_known = all;
}

enum status bpe_alphabet_read(struct bpe_alphabet *alphabet, const struct string_table *vocabulary) {
    size_t count = 0;
    for (size_t i = 0; i < vocabulary->slot_count; i++) {
        const struct string_slot *slot = &vocabulary->slots[i];
        uint32_t code;
        if (!slot->text || !token_read(alphabet, slot->text, slot->bytes, &code)) continue;
        TRY(character_add(alphabet, code, slot->id));
        count++;
    }
    byte_tokens_find(alphabet, vocabulary);
    alphabet->all_known |= alphabet->bytes && count == 256;
    return STATUS_OK;
}

/* NULL when the vocabulary has no token for it. */
static const struct bpe_character *bpe_alphabet_find(const struct bpe_alphabet *alphabet, uint32_t code) {
    const struct bpe_character *page = alphabet->pages[code / PAGE_CODES];
    return page && page[code % PAGE_CODES].known ? &page[code % PAGE_CODES] : NULL;
}

/* The character at the beginning of a word: its length in bytes, and its code (the byte if `bytes` is set). */
static size_t bpe_alphabet_next(const struct bpe_alphabet *alphabet, const char *text, uint32_t *code) {
    size_t length = 1;
    *code = alphabet->bytes ? (unsigned char)text[0] : utf8_decode_valid(text, &length);
    return length;
}

/* The ids of a character that is no token by its bytes; returns their number, 0 where one has none. */
static size_t bpe_alphabet_fall_back(const struct bpe_alphabet *alphabet, uint32_t code,
                                     uint32_t ids[BPE_START_IDS_MAX]) {
    if (!alphabet->byte_fallback) return 0;
    char text[4];
    size_t length = token_write(alphabet, code, text);
    for (size_t i = 0; i < length; i++) {
        int64_t id = alphabet->byte_ids[(unsigned char)text[i]];
        if (id == BPE_NO_ID) return 0;
        ids[i] = (uint32_t)id;
    }
    return length;
}

static bool is_start_token(const struct bpe_alphabet *alphabet, const char *text, size_t bytes) {
    unsigned char byte;
    return alphabet->byte_fallback && byte_token_read(text, bytes, &byte);
}

/* The character at one end of a token, or NULL when it is not in the vocabulary: then no word begins with its token. */
static struct bpe_character *end_find(struct bpe_alphabet *alphabet, const char *text, size_t bytes, bool last,
                                      uint32_t *code) {
    size_t length;
    *code = last ? utf8_decode_last(text, bytes, &length) : utf8_decode_valid(text, &length);
    if (alphabet->bytes) {
        int byte = byte_alphabet_byte(*code);
        if (byte < 0) return NULL;
        *code = (uint32_t)byte;
    }
    return (struct bpe_character *)bpe_alphabet_find(alphabet, *code);
}

enum status bpe_alphabet_note_merge(struct bpe_alphabet *alphabet, const char *left, size_t left_bytes,
                                    const char *right, size_t right_bytes) {
    uint32_t codes[2];
    /* Tokens whose meaning is not the characters that they are written with. */
    if (left_bytes == 0 || right_bytes == 0 || is_start_token(alphabet, left, left_bytes) ||
        is_start_token(alphabet, right, right_bytes))
        return alphabet->uncut = true, STATUS_OK;
    struct bpe_character *before = end_find(alphabet, left, left_bytes, true, &codes[0]);
    struct bpe_character *after = end_find(alphabet, right, right_bytes, false, &codes[1]);
    if (!before || !after) return STATUS_OK;
    before->left = after->right = true;
    return pair_table_set(&alphabet->borders, codes[0], codes[1], 0);
}

/* Whether a word may be cut between two characters. */
static bool bpe_alphabet_may_cut(const struct bpe_alphabet *alphabet, uint32_t left, uint32_t right) {
    if (alphabet->uncut) return false;
    const struct bpe_character *before = bpe_alphabet_find(alphabet, left);
    const struct bpe_character *after = bpe_alphabet_find(alphabet, right);
    /* Unknown characters may become one token, or come out late: see character_start. */
    if (!before || !after) return alphabet->all_known;
    if (!before->left || !after->right) return true;
    return pair_table_find(&alphabet->borders, left, right) == PAIR_NONE;
}

static void bpe_alphabet_free(struct bpe_alphabet *alphabet) {
    for (size_t i = 0; i < sizeof alphabet->pages / sizeof *alphabet->pages; i++)
        mem_free(alphabet->pages[i]);
    pair_table_free(&alphabet->borders);
    *alphabet = (struct bpe_alphabet){0};
}

/* --- the merges of a vocabulary, and words to ids by them --- */

static void heap_sink(uint64_t *heap, size_t count) {
    uint64_t entry = heap[0];
    size_t place = 0;
    for (size_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (entry <= heap[child]) break;
        heap[place] = heap[child];
    }
    heap[place] = entry;
}

static enum status heap_add(struct bpe_workspace *workspace, uint64_t entry) {
    TRY(vec_push(&workspace->heap, entry));
    uint64_t *heap = workspace->heap.items;
    size_t place = workspace->heap.count - 1;
    for (size_t parent; place > 0 && entry < heap[parent = (place - 1) / 2]; place = parent)
        heap[place] = heap[parent];
    heap[place] = entry;
    return STATUS_OK;
}

/* Takes the first pair that is not out of date; false when there is none. */
static bool heap_take(struct bpe_workspace *workspace, uint32_t *place) {
    while (workspace->heap.count > 0) {
        uint64_t entry = workspace->heap.items[0];
        *place = (uint32_t)entry;
        workspace->heap.items[0] = workspace->heap.items[--workspace->heap.count];
        if (workspace->heap.count > 1) heap_sink(workspace->heap.items, workspace->heap.count);
        if (workspace->symbols.items[*place].rank == entry >> 32) return true;
    }
    return false;
}

enum status bpe_model_add_merge(struct bpe_model *model, uint32_t left, uint32_t right, uint32_t result) {
    TRY(pair_table_set(&model->ranks, left, right, (uint32_t)model->results.count));
    return vec_push(&model->results, result);
}

enum status bpe_model_add_token(struct bpe_model *model, const char *text, uint32_t bytes, uint32_t id) {
    if (bytes > model->longest_token_bytes) model->longest_token_bytes = bytes;
    return string_table_add(&model->vocabulary, text, bytes, id);
}

void bpe_model_free(struct bpe_model *model) {
    string_table_free(&model->vocabulary);
    pair_table_free(&model->ranks);
    vec_free(&model->results);
    bpe_alphabet_free(&model->alphabet);
    *model = (struct bpe_model){0};
}

struct word_start {
    const struct bpe_alphabet *alphabet;
    struct bpe_workspace *workspace;
    bool unknown; /* an unknown token has still to be added */
};

static enum status symbol_add(struct bpe_workspace *workspace, uint32_t id) {
    uint32_t place = (uint32_t)workspace->symbols.count;
    return vec_push(&workspace->symbols,
                    (struct bpe_symbol){.id = id, .previous = place - 1, .next = place + 1, .rank = PAIR_NONE});
}

static enum status unknown_flush(struct word_start *start) {
    if (!start->unknown) return STATUS_OK;
    start->unknown = false;
    return symbol_add(start->workspace, (uint32_t)start->alphabet->unknown_id);
}

/* The `tokenizers` library adds an unknown token only at the next unknown character, the next known one, or the end. So
 * the byte tokens of characters in between come before it. */
static enum status character_start(struct word_start *start, uint32_t code) {
    const struct bpe_alphabet *alphabet = start->alphabet;
    const struct bpe_character *character = bpe_alphabet_find(alphabet, code);
    uint32_t ids[BPE_START_IDS_MAX];
    if (character) {
        TRY(unknown_flush(start));
        return symbol_add(start->workspace, character->id);
    }
    size_t count = bpe_alphabet_fall_back(alphabet, code, ids);
    for (size_t i = 0; i < count; i++)
        TRY(symbol_add(start->workspace, ids[i]));
    if (count > 0 || alphabet->unknown_id == BPE_NO_ID) return STATUS_OK;
    if (!alphabet->fuse_unknown) TRY(unknown_flush(start));
    start->unknown = true;
    return STATUS_OK;
}

static enum status symbols_fill(const struct bpe_alphabet *alphabet, struct bpe_workspace *workspace, const char *word,
                                size_t bytes) {
    struct word_start start = {alphabet, workspace, false};
    workspace->symbols.count = 0;
    TRY(vec_reserve(&workspace->symbols, bytes));
    for (size_t place = 0; place < bytes;) {
        uint32_t code;
        place += bpe_alphabet_next(alphabet, word + place, &code);
        TRY(character_start(&start, code));
    }
    TRY(unknown_flush(&start));
    size_t count = workspace->symbols.count;
    if (count > 0) workspace->symbols.items[0].previous = workspace->symbols.items[count - 1].next = BPE_NO_PLACE;
    return STATUS_OK;
}

/* Ranks the pair that begins at `place` anew. */
static enum status pair_renew(const struct bpe_model *model, struct bpe_workspace *workspace, uint32_t place) {
    struct bpe_symbol *symbols = workspace->symbols.items, *symbol = &symbols[place];
    symbol->rank = PAIR_NONE;
    if (symbol->next == BPE_NO_PLACE) return STATUS_OK;
    symbol->rank = pair_table_find(&model->ranks, symbol->id, symbols[symbol->next].id);
    return symbol->rank == PAIR_NONE ? STATUS_OK : heap_add(workspace, (uint64_t)symbol->rank << 32 | place);
}

static enum status pair_merge(const struct bpe_model *model, struct bpe_workspace *workspace, uint32_t place) {
    struct bpe_symbol *symbols = workspace->symbols.items, *left = &symbols[place], *right = &symbols[left->next];
    left->id = model->results.items[left->rank];
    left->next = right->next;
    right->rank = PAIR_NONE;
    if (left->next != BPE_NO_PLACE) symbols[left->next].previous = place;
    if (left->previous != BPE_NO_PLACE) TRY(pair_renew(model, workspace, left->previous));
    return pair_renew(model, workspace, place);
}

static enum status pairs_merge(const struct bpe_model *model, struct bpe_workspace *workspace) {
    uint32_t place;
    workspace->heap.count = 0;
    for (uint32_t i = 0; i < workspace->symbols.count; i++)
        TRY(pair_renew(model, workspace, i));
    while (heap_take(workspace, &place))
        TRY(pair_merge(model, workspace, place));
    return STATUS_OK;
}

/* The id of the whole word, where words that are tokens are not taken apart. */
static enum status word_find(const struct bpe_model *model, struct bpe_workspace *workspace, const char *word,
                             size_t bytes, int64_t *id) {
    uint32_t found;
    *id = BPE_NO_ID;
    if (!model->ignore_merges || bytes > model->longest_token_bytes) return STATUS_OK;
    if (model->alphabet.bytes) {
        workspace->text.count = 0;
        TRY(byte_alphabet_write(&workspace->text, word, bytes));
        word = workspace->text.items;
        bytes = workspace->text.count;
    }
    if (string_table_find(&model->vocabulary, word, bytes, &found)) *id = found;
    return STATUS_OK;
}

enum status bpe_model_encode(const struct bpe_model *model, struct bpe_workspace *workspace, const char *word,
                             size_t bytes, struct token_ids *out) {
    if (bytes >= BPE_NO_PLACE)
        return status_set(STATUS_BAD_INPUT, "a word of %zu bytes: the tokenizer never splits it", bytes);
    int64_t id;
    TRY(word_find(model, workspace, word, bytes, &id));
    if (id != BPE_NO_ID) return vec_push(out, (uint32_t)id);
    TRY(symbols_fill(&model->alphabet, workspace, word, bytes));
    if (workspace->symbols.count == 0) return STATUS_OK;
    TRY(pairs_merge(model, workspace));
    const struct bpe_symbol *symbols = workspace->symbols.items;
    for (uint32_t place = 0; place != BPE_NO_PLACE; place = symbols[place].next)
        TRY(vec_push(out, symbols[place].id));
    return STATUS_OK;
}

void bpe_workspace_free(struct bpe_workspace *workspace) {
    vec_free(&workspace->symbols);
    vec_free(&workspace->heap);
    vec_free(&workspace->text);
}

/* The step that turns words into ids, with a cache of words. */

/* The cache is a table in which each word has one place; a newer word takes it from an older one. So its size is
 * bounded and a lookup is one comparison. It begins small, for texts of a few words, and starts over larger as it
 * fills. Long words, and those of many tokens, do not come back often enough to be kept. */
enum { CACHE_FIRST_ENTRIES = 1 << 7, CACHE_ENTRIES_MAX = 1 << 15, CACHED_WORD_BYTES = 46, CACHED_IDS = 20 };

struct cache_entry {
    uint8_t bytes, id_count; /* bytes 0: free */
    char word[CACHED_WORD_BYTES];
    uint32_t ids[CACHED_IDS];
};

struct bpe_step_state {
    struct bpe_workspace workspace;
    struct token_ids ids;
    struct cache_entry *cache;
    size_t cache_entries, stored; /* a power of two; words stored since it has this size */
};

static enum status cache_make(struct bpe_step_state *own, size_t entries) {
    struct cache_entry *cache = mem_array(entries, sizeof *cache);
    if (!cache) return STATUS_FAILED;
    mem_free(own->cache);
    own->cache = cache;
    own->cache_entries = entries;
    own->stored = 0;
    return STATUS_OK;
}

static enum status cache_store(struct bpe_step_state *own, uint64_t hash, const char *word, size_t bytes) {
    const struct token_ids *ids = &own->ids;
    if (bytes > CACHED_WORD_BYTES || ids->count > CACHED_IDS) return STATUS_OK;
    if (own->stored++ == own->cache_entries && own->cache_entries < CACHE_ENTRIES_MAX)
        TRY(cache_make(own, 4 * own->cache_entries));
    struct cache_entry *entry = &own->cache[hash & (own->cache_entries - 1)];
    entry->bytes = (uint8_t)bytes;
    entry->id_count = (uint8_t)ids->count;
    memcpy(entry->word, word, bytes);
    if (ids->count > 0) memcpy(entry->ids, ids->items, ids->count * sizeof *ids->items);
    return STATUS_OK;
}

static enum status word_encode(const struct bpe_model *model, struct bpe_step_state *own, const char *word,
                               size_t bytes, const struct token_sink *sink) {
    uint64_t hash = 0;
    if (bytes <= CACHED_WORD_BYTES) {
        hash = hash_bytes(word, bytes);
        const struct cache_entry *entry = &own->cache[hash & (own->cache_entries - 1)];
        if (entry->bytes == bytes && memcmp(entry->word, word, bytes) == 0)
            return sink->write(sink->payload, entry->ids, entry->id_count);
    }
    own->ids.count = 0;
    TRY(bpe_model_encode(model, &own->workspace, word, bytes, &own->ids));
    TRY(cache_store(own, hash, word, bytes));
    return sink->write(sink->payload, own->ids.items, own->ids.count);
}

/* The words that a segment may be cut into, except the last, which begins at *rest. */
static enum status words_encode(const struct bpe_model *model, struct bpe_step_state *own, struct text_view view,
                                const struct token_sink *sink, size_t *rest) {
    const struct bpe_alphabet *alphabet = &model->alphabet;
    uint32_t left, right;
    size_t start = 0, place = bpe_alphabet_next(alphabet, view.text, &left);
    for (size_t length; place < view.bytes; place += length, left = right) {
        length = bpe_alphabet_next(alphabet, view.text + place, &right);
        if (!bpe_alphabet_may_cut(alphabet, left, right)) continue;
        TRY(word_encode(model, own, view.text + start, place - start, sink));
        start = place;
    }
    *rest = start;
    return STATUS_OK;
}

static enum status bpe_apply(const void *settings, void *state, struct text_view view, const struct text_output *output,
                             size_t *consumed) {
    const struct bpe_model *model = settings;
    struct bpe_step_state *own = state;
    size_t rest = 0;
    *consumed = view.bytes;
    if (view.bytes == 0) return STATUS_OK;
    if (!own->cache) TRY(cache_make(own, CACHE_FIRST_ENTRIES));
    /* A word that may be a token as a whole is not cut; nor is a short one, which gains nothing. */
    bool may_cut = !model->ignore_merges && !model->alphabet.uncut && view.bytes > CACHED_WORD_BYTES;
    if (may_cut) TRY(words_encode(model, own, view, &output->ids, &rest));
    return word_encode(model, own, view.text + rest, view.bytes - rest, &output->ids);
}

static void bpe_stop(void *state) {
    struct bpe_step_state *own = state;
    bpe_workspace_free(&own->workspace);
    vec_free(&own->ids);
    mem_free(own->cache);
}

const struct text_step_type text_bpe_step = {
    .name = "bpe",
    .state_bytes = sizeof(struct bpe_step_state),
    .whole = true,
    .apply = bpe_apply,
    .stop = bpe_stop,
};
