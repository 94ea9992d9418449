#include "support/data_place.h"

#include <stdio.h>

#include "support/data_files.h"
#include "support/temp_folder.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"

void data_place_train(struct data_place *place, int64_t vocab_size, bool ends) {
    static const char *const special[] = {"<|end|>"};
    size_t bytes;
    char *text = random_text(1, 2000, &bytes);
    tokenizer_free(place->tokenizer);
    place->tokenizer = NULL;
    if (tokenizer_train(text, bytes, vocab_size, special, ends, place->tokenizer_path) != STATUS_OK ||
        tokenizer_open(place->tokenizer_path, &place->tokenizer) != STATUS_OK)
        fail_msg("%s", status_message());
    mem_free(text);
    place->options.tokenizer = place->tokenizer;
    place->options.eos_token = ends ? 0 : -1;
    place->options.vocab_size = vocab_size;
}

void *data_place_make(size_t bytes, int64_t vocab_size, bool ends) {
    struct data_place *place = mem_array(1, bytes);
    assert_non_null(place);
    assert_int_equal(temp_folder_make((void **)&place->folder), 0);
    snprintf(place->tokenizer_path, sizeof place->tokenizer_path, "%s/tokenizer.json", place->folder);
    snprintf(place->cache_folder, sizeof place->cache_folder, "%s/cache", place->folder);
    place->options = (struct dataset_options){.paths = place->paths,
                                              .path_count = 1,
                                              .tokenizer_path = place->tokenizer_path,
                                              .cache_folder = place->cache_folder,
                                              .seed = 5};
    data_place_train(place, vocab_size, ends);
    return place;
}

int data_place_drop(void **state) {
    struct data_place *place = *state;
    tokenizer_free(place->tokenizer);
    int result = temp_folder_drop((void **)&place->folder);
    mem_free(place);
    return result;
}
