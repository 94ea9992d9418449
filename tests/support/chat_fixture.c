#include "support/chat_fixture.h"

#include "base/json.h"
#include "support/temp_folder.h"
#include "support/unit.h"

int chat_fixture_open(void **state, json_t **families, struct tokenizer **tokenizer) {
    enum status status = json_read_object(BALLAST_FIXTURES "/chat/families.json", 1 << 24, families);
    if (status == STATUS_OK) status = tokenizer_open(BALLAST_FIXTURES "/chat/tokenizer.json", tokenizer);
    if (status != STATUS_OK) print_error("%s\n", status_message());
    return status == STATUS_OK ? temp_folder_make(state) : -1;
}

int chat_fixture_close(void **state, json_t *families, struct tokenizer *tokenizer) {
    json_decref(families);
    tokenizer_free(tokenizer);
    return temp_folder_drop(state);
}
