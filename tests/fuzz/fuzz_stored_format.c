/* Any quantization_config, and any state of a weight, is refused with a message or read. A format with its own
 * tensors is equal after writing and reading again. An offset is a number. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "model/stored_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require_message(enum status status) {
    BUG_IF(status != STATUS_BAD_INPUT || status_message()[0] == '\0', "a refusal without a message");
}

static void read_config(const json_t *object) {
    struct stored_format found, again;
    struct plain_layers *plain;
    enum status status = plain_layers_read("config.json", object, &plain);
    if (status == STATUS_OK) {
        (void)plain_layers_have(plain, "model.layers.10.mlp.gate_proj.weight");
        plain_layers_free(plain);
    } else
        require_message(status);
    status_clear();
    status = stored_format_read_config("config.json", object, &found);
    if (status != STATUS_OK) return require_message(status);
    BUG_IF(found.format == WEIGHT_PLAIN || found.format >= WEIGHT_FORMAT_COUNT, "no format");
    BUG_IF(found.block < WEIGHT_BLOCK_WHOLE, "a block of %lld", (long long)found.block);
    if (weight_format_has_groups(found.format)) return;
    json_t *written = stored_format_write_config(found.format, false);
    BUG_IF(!written || stored_format_read_config("written", written, &again) != STATUS_OK, "%s", status_message());
    BUG_IF(again.format != found.format, "the format is another");
    json_decref(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const struct weight_code code = {WEIGHT_NF4, shape_make(DTYPE_F32, 2, 64, 48, 1), 0};
    float offset = 0;
    json_t *object;
    status_clear();
    enum status status = stored_state_parse("state", (const char *)data, bytes, &code, &offset);
    if (status == STATUS_OK)
        BUG_IF(!isfinite(offset), "an offset that is no number");
    else
        require_message(status);
    status_clear();
    if (json_parse_object("config.json", (const char *)data, bytes, &object) != STATUS_OK) return 0;
    read_config(object);
    json_decref(object);
    return 0;
}
