#include "train/checkpoint_writer.h"

#include <errno.h>
#include <string.h>

#include "base/fault.h"
#include "base/progress.h"

static void set_flag(struct checkpoint_writer *writer, bool *flag, bool value) {
    pthread_mutex_lock(&writer->lock);
    *flag = value;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

static void release_arena(void *payload) {
    struct checkpoint_writer *writer = payload;
    set_flag(writer, &writer->reading, false);
}

static void await_reading(void *payload) {
    struct checkpoint_writer *writer = payload;
    pthread_mutex_lock(&writer->lock);
    while (writer->reading)
        pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
}

void checkpoint_writer_open(const char *run_folder, struct engine *engine, const struct dataset *dataset,
                            const struct train_options *options, struct metrics *metrics,
                            struct checkpoint_writer *out) {
    *out = (struct checkpoint_writer){.metrics = metrics};
    out->source = (struct checkpoint_source){.run_folder = run_folder,
                                             .engine = engine,
                                             .dataset = dataset,
                                             .options = options,
                                             .released = release_arena,
                                             .payload = out};
    pthread_mutex_init(&out->lock, NULL);
    pthread_cond_init(&out->changed, NULL);
    runner_set_gate(engine->main, await_reading, out);
}

void checkpoint_writer_close(struct checkpoint_writer *writer) {
    if (!writer->source.engine) return;
    if (writer->running) pthread_join(writer->thread, NULL);
    mem_free(writer->folder);
    runner_set_gate(writer->source.engine->main, NULL, NULL);
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->changed);
    *writer = (struct checkpoint_writer){0};
}

static void *write_one(void *payload) {
    struct checkpoint_writer *writer = payload;
    progress_mute_thread();
    /* The compute threads are busy with the step. */
    writer->source.engine->plan->session->machine.backend->set_threads(1);
    enum status status = metrics_sync(writer->metrics);
    if (status == STATUS_OK) status = checkpoint_write(&writer->source, &writer->state, &writer->folder);
    release_arena(writer); /* however it failed */
    writer->status = status;
    snprintf(writer->message, sizeof writer->message, "%s", status_message());
    snprintf(writer->hint, sizeof writer->hint, "%s", status_hint_text());
    set_flag(writer, &writer->writing, false);
    return NULL;
}

enum status checkpoint_writer_begin(struct checkpoint_writer *writer, const struct checkpoint_state *state) {
    BUG_IF(writer->running, "two checkpoints at once");
    writer->state = *state;
    writer->reading = writer->writing = true;
    int error = fault_point(FAULT_SUBMIT) ? EAGAIN : pthread_create(&writer->thread, NULL, write_one, writer);
    writer->running = error == 0;
    if (writer->running) return STATUS_OK;
    writer->reading = writer->writing = false;
    return status_set(STATUS_FAILED, "cannot start a thread for the checkpoint: %s", strerror(error));
}

bool checkpoint_writer_ended(struct checkpoint_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    bool ended = writer->running && !writer->writing;
    pthread_mutex_unlock(&writer->lock);
    return ended;
}

enum status checkpoint_writer_finish(struct checkpoint_writer *writer, char **folder) {
    *folder = NULL;
    if (!writer->running) return STATUS_OK;
    pthread_join(writer->thread, NULL);
    writer->running = false;
    if (writer->status != STATUS_OK)
        return status_hint(status_set(writer->status, "%s", writer->message), "%s", writer->hint);
    *folder = writer->folder;
    writer->folder = NULL;
    return STATUS_OK;
}
