#include "support/chat_fixture.h"

#include "support/packed_json.h"
#include "support/temp_folder.h"
#include "support/unit.h"

int chat_fixture_open(void **state, json_t **families, struct tokenizer **tokenizer) {
    *families = packed_json_read("chat/families.json.gz");
    enum status status = tokenizer_open(BALLAST_FIXTURES "/chat/tokenizer.json", tokenizer);
    if (status != STATUS_OK) print_error("%s\n", status_message());
    return status == STATUS_OK ? temp_folder_make(state) : -1;
}

int chat_fixture_close(void **state, json_t *families, struct tokenizer *tokenizer) {
    json_decref(families);
    tokenizer_free(tokenizer);
    return temp_folder_drop(state);
}
