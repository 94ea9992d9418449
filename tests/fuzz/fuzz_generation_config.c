/* Any generation_config.json is refused or gives settings within their ranges. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/terminal.h"
#include "generate/generate.h"

enum { VOCAB = 300 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *object;
    struct generation_config config;
    struct generate_options options;
    char note[GENERATION_NOTE_BYTES];
    if (json_parse_object("generation_config.json", (const char *)data, bytes, &object) != STATUS_OK) return 0;
    if (generation_config_from_json("generation_config.json", object, VOCAB, &config) == STATUS_OK) {
        generate_options_init(&options);
        generation_config_apply(&config, &options, note);
        bool good = options.temperature >= 0 && options.top_k >= 0 && options.top_p > 0 && options.top_p <= 1 &&
                    options.repetition_penalty > 0;
        for (size_t i = 0; i < config.ends.count; i++)
            good &= config.ends.items[i] < VOCAB;
        if (!good) abort();
        generation_config_free(&config);
    }
    json_decref(object);
    return 0;
}
