#include "train/checkpoint_writer.h"

#include "base/fault.h"
#include "base/terminal.h"

static struct comm *comm_of(const struct checkpoint_writer *writer) {
    return writer->source.engine->plan->session->comm;
}

/* One rank needs no agreement: its thread runs all phases. */
static bool is_alone(const struct checkpoint_writer *writer) { return mesh_ranks(&comm_of(writer)->mesh) == 1; }

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

/* ---- The thread ---- */

static enum status run_phase(struct checkpoint_writer *writer) {
    struct checkpoint_saving *saving = &writer->saving;
    bool alone = is_alone(writer);
    enum status status = STATUS_OK;
    if (writer->phase == WRITER_WRITES) {
        if (comm_of(writer)->rank == 0) status = metrics_sync(writer->metrics);
        if (status == STATUS_OK) status = checkpoint_write_part(saving);
        release_arena(writer); /* also after a failure */
        if (alone) status = checkpoint_gather(saving, status);
    }
    if (writer->phase == WRITER_SUMS) status = checkpoint_sum_part(saving);
    if ((alone || writer->phase == WRITER_PUBLISHES) && status == STATUS_OK) status = checkpoint_publish(saving);
    return alone ? checkpoint_end(saving, status, &writer->folder) : status;
}

static void *work(void *payload) {
    struct checkpoint_writer *writer = payload;
    progress_mute_thread();
    /* The compute threads are busy with the step. */
    writer->source.engine->plan->session->machine.backend->set_threads(1);
    status_save(run_phase(writer), &writer->end);
    set_flag(writer, &writer->working, false);
    return NULL;
}

static enum status start_thread(struct checkpoint_writer *writer) {
    writer->working = true;
    int error = fault_point(FAULT_SUBMIT) ? EAGAIN : pthread_create(&writer->thread, NULL, work, writer);
    writer->joinable = error == 0;
    if (writer->joinable) return STATUS_OK;
    writer->working = false;
    release_arena(writer);
    return status_set(STATUS_FAILED, "cannot start a thread for the checkpoint: %s", strerror(error));
}

static void join_thread(struct checkpoint_writer *writer) {
    if (writer->joinable) pthread_join(writer->thread, NULL);
    writer->joinable = false;
}

/* ---- Between steps ---- */

static void end_saving(struct checkpoint_writer *writer, enum status status) {
    status_save(checkpoint_end(&writer->saving, status, &writer->folder), &writer->end);
    writer->phase = WRITER_ENDED;
}

/* Once the thread runs, the status is the thread's. */
static void start_or_keep(struct checkpoint_writer *writer) {
    enum status started = start_thread(writer);
    if (started != STATUS_OK) status_save(started, &writer->end);
}

/* Enters the next phase if no rank failed; otherwise ends the saving. */
static bool enter(struct checkpoint_writer *writer, enum writer_phase phase, enum status status) {
    writer->phase = phase;
    status_save(status, &writer->end);
    if (writer->saving.folder.agreed) /* all ranks know of the failure */
        end_saving(writer, status);
    return status == STATUS_OK;
}

/* Continues after all threads have finished a phase. Only rank 0 has work in the last phase. */
static void go_on(struct checkpoint_writer *writer) {
    join_thread(writer);
    if (is_alone(writer)) {
        writer->phase = WRITER_ENDED;
        return;
    }
    enum status status = status_restore(&writer->end);
    if (writer->phase == WRITER_PUBLISHES) {
        end_saving(writer, status);
    } else if (writer->phase == WRITER_WRITES && writer->saving.folder.has_runs) {
        if (enter(writer, WRITER_SUMS, joint_folder_meet(&writer->saving.folder, status))) start_or_keep(writer);
    } else {
        bool entered = enter(writer, WRITER_PUBLISHES, checkpoint_gather(&writer->saving, status));
        if (entered && comm_of(writer)->rank == 0) start_or_keep(writer);
    }
}

static bool is_working(struct checkpoint_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    bool working = writer->working;
    pthread_mutex_unlock(&writer->lock);
    return working;
}

/* Collective. Whether any rank's thread is still working. A communication failure ends the waiting. */
static bool any_is_working(struct checkpoint_writer *writer) {
    struct comm *comm = comm_of(writer);
    struct comm_group all = comm_group_all(comm);
    char mine = is_working(writer);
    AUTO_FREE char *theirs = mem_array((size_t)all.count, 1);
    bool gathered = theirs && comm_all_gather(comm, &all, &mine, 1, theirs) == STATUS_OK;
    return gathered ? memchr(theirs, 1, (size_t)all.count) != NULL : mine != 0;
}

bool checkpoint_writer_ended(struct checkpoint_writer *writer) {
    if (writer->phase == WRITER_IDLE) return false;
    if (writer->phase == WRITER_ENDED) return true;
    bool working = is_alone(writer) ? is_working(writer) : any_is_working(writer);
    if (!working) go_on(writer);
    return writer->phase == WRITER_ENDED;
}

enum status checkpoint_writer_begin(struct checkpoint_writer *writer, const struct checkpoint_state *state) {
    BUG_IF(writer->phase != WRITER_IDLE, "two checkpoints at once");
    writer->state = *state;
    status_save(STATUS_OK, &writer->end);
    enum status status = checkpoint_begin(&writer->source, &writer->state, &writer->saving);
    if (status != STATUS_OK) return checkpoint_end(&writer->saving, status, &writer->folder);
    writer->phase = WRITER_WRITES;
    writer->reading = true;
    status = start_thread(writer);
    if (status == STATUS_OK) return STATUS_OK;
    status_save(status, &writer->end);
    if (!is_alone(writer)) return STATUS_OK; /* all ranks learn of the end in any_is_working */
    end_saving(writer, status);
    writer->phase = WRITER_IDLE;
    return status_restore(&writer->end);
}

enum status checkpoint_writer_finish(struct checkpoint_writer *writer, char **folder) {
    *folder = NULL;
    if (writer->phase == WRITER_IDLE) return STATUS_OK;
    while (writer->phase != WRITER_ENDED)
        go_on(writer); /* which waits for the thread, and then for the other ranks */
    writer->phase = WRITER_IDLE;
    TRY(status_restore(&writer->end));
    *folder = TAKE(writer->folder);
    return STATUS_OK;
}

void checkpoint_writer_close(struct checkpoint_writer *writer) {
    if (!writer->source.engine) return;
    join_thread(writer);
    if (writer->saving.source) checkpoint_drop(&writer->saving);
    mem_free(writer->folder);
    runner_set_gate(writer->source.engine->main, NULL, NULL);
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->changed);
    *writer = (struct checkpoint_writer){0};
}
