/* Any adapter_config.json is refused with a message or read. Valid settings are equal after writing and reading
 * again. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_again(const struct adapter *adapter) {
    struct adapter again;
    const char *base = NULL;
    char text[ADAPTER_TEXT_BYTES], text_again[ADAPTER_TEXT_BYTES];
    json_t *written = adapter_write_config(adapter, "base", adapter_list_targets(adapter), false);
    BUG_IF(!written, "%s", status_message());
    enum status status = adapter_read_config("written", written, &again, &base);
    BUG_IF(status != STATUS_OK, "%s", status_message());
    BUG_IF(strcmp(base, "base") != 0, "the base model is another");
    json_decref(written);
    BUG_IF(strcmp(adapter_print(adapter, text), adapter_print(&again, text_again)) != 0, "the adapter is another");
    BUG_IF(adapter_parse(text, &again) != STATUS_OK, "%s", status_message());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *object;
    struct adapter adapter;
    const char *base = NULL;
    status_clear();
    if (json_parse_object("adapter_config.json", (const char *)data, bytes, &object) != STATUS_OK) return 0;
    enum status status = adapter_read_config("adapter_config.json", object, &adapter, &base);
    if (status == STATUS_OK)
        read_again(&adapter);
    else
        BUG_IF(status != STATUS_BAD_INPUT || status_message()[0] == '\0', "a refusal without a message");
    json_decref(object);
    return 0;
}
