/* Any rows are refused with a message or read. Described rows are simulated, or have a reason why not. */
#include "base/json.h"
#include "search/scale/forecast.h"
#include "support/scale_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void simulate(const struct scale_row *row) {
    enum { PASSES_MAX = 20000 }; /* more of the same */
    const struct layout *layout = &row->job.layout;
    struct calibration calibration = calibration_default();
    struct forecast forecast;
    if (!row->described || layout->pipeline > PASSES_MAX || row->job.model.layers > PASSES_MAX) return;
    if (layout->micro_batches > PASSES_MAX / layout->pipeline / layout->virtual_stages / row->job.model.layers) return;
    enum status status = forecast_step(&row->job, &calibration, &forecast);
    BUG_IF(status != STATUS_OK, "%s", status_message());
    BUG_IF(!(forecast.step_s > 0), "a step of no time");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct scale_rows rows;
    status_clear();
    json_t *document = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    if (!document) return 0;
    enum status status = scale_rows_parse("fuzz", document, &rows);
    BUG_IF(status != STATUS_OK && (status != STATUS_BAD_INPUT || status_message()[0] == '\0'), "no message");
    if (status != STATUS_OK) {
        json_decref(document);
        return 0;
    }
    for (size_t i = 0; i < rows.list.count; i++)
        simulate(&rows.list.items[i]);
    scale_rows_free(&rows);
    return 0;
}
