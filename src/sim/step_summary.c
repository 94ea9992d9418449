#include "sim/step_summary.h"

#include <stdio.h>

void step_summarise(const struct timeline *timeline, const struct costs *costs, struct step_summary *out) {
    *out = (struct step_summary){.step_s = timeline->step_s, .stream_count = timeline->program->streams};
    timeline_summarise(timeline, out->streams);
    out->bound_count = timeline_bounds(timeline, costs, out->bounds);
}

static json_t *streams_to_json(const struct step_summary *summary) {
    json_t *list = json_array();
    int failed = !list;
    for (int s = 0; s < summary->stream_count; s++) {
        const struct timeline_stream *stream = &summary->streams[s];
        failed |= json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "role", stream_role_name(stream->role),
                                                        "busy_s", stream->busy_s, "waiting_s", stream->waiting_s));
    }
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static json_t *bounds_to_json(const struct step_summary *summary) {
    char words[BOUND_WORDS_BYTES];
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; i < summary->bound_count; i++)
        failed |= json_array_append_new(list, json_pack("{s:s, s:f}", "what", bound_words(&summary->bounds[i], words),
                                                        "seconds", summary->bounds[i].seconds));
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

enum status step_summary_add_json(const struct step_summary *summary, json_t *object) {
    int failed = json_object_set_new(object, "step_s", summary->step_s > 0 ? json_real(summary->step_s) : json_null()) |
                 json_object_set_new(object, "streams", streams_to_json(summary)) |
                 json_object_set_new(object, "binds", bounds_to_json(summary));
    return failed ? status_no_memory(0, "a step's JSON") : STATUS_OK;
}

char *bound_words(const struct bound *bound, char text[BOUND_WORDS_BYTES]) {
    snprintf(text, BOUND_WORDS_BYTES, "%s during %s%s", activity_name(bound->activity), phase_name(bound->phase),
             bound->role == STREAM_UPDATE ? " (deferred update)" : "");
    return text;
}
