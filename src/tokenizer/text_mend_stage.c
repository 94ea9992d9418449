#include "tokenizer/text_stages.h"

static enum status mend_run(const void *settings, void *state, struct text_view view, const struct text_output *output,
                            size_t *consumed) {
    (void)settings, (void)state;
    static const char replacement[] = "\xEF\xBF\xBD";
    const struct text_sink *next = &output->next;
    size_t place = 0;
    while (place < view.bytes) {
        size_t valid = utf8_valid_bytes(view.text + place, view.bytes - place);
        if (valid > 0) TRY(next->write(next->payload, view.text + place, valid, false));
        place += valid;
        if (place == view.bytes) break;
        uint32_t code;
        size_t length = utf8_decode(view.text + place, view.bytes - place, &code);
        if (code == UTF8_CUT && !view.end) break;
        TRY(next->write(next->payload, replacement, 3, false));
        place += length;
    }
    *consumed = place;
    return view.end ? next->write(next->payload, "", 0, true) : STATUS_OK;
}

const struct text_stage_type text_mend_stage = {.name = "mend", .run = mend_run};
