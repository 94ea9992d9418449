/* From tokens back to text: decoders take a list of strings and make another, in the order in which a file names them.
 */
#ifndef BALLAST_DATA_TOKENIZER_DECODER_H
#define BALLAST_DATA_TOKENIZER_DECODER_H

#include "data/utf8.h"

/* Strings that lie one behind the other: string i is [ends[i - 1], ends[i]) of the text. */
struct text_list {
    struct text_buffer text;
    VEC(size_t) ends;
};
/* Closes the string that was appended to list->text. */
enum status text_list_close(struct text_list *list);
void text_list_free(struct text_list *list);

struct token_decoder_type {
    const char *name;
    /* Appends to an empty list. */
    enum status (*run)(const struct text_list *in, struct text_list *out);
};

/* Characters of the byte alphabet -> bytes, in one string. A token with any other character is taken as it is; what is
 * not UTF-8 in the end becomes U+FFFD. */
extern const struct token_decoder_type byte_level_decoder;

#endif
