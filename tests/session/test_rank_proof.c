/* Before a step on several ranks is trained or planned, the programs of all ranks are proved together: data, tensor
 * and pipeline parallelism. */
/* link: -Wl,--wrap=program_compile */
#include "session/plan.h"
#include "session/programs.h"
#include "support/shared_model.h"
#include "support/tiny_run.h"
#include "support/unit.h"

/* Programs that were made of other ranks than 0, and the rank of them whose first operation is wrong; 0: none. */
static int compiled, victim;

enum status __real_program_compile(const struct graph *graph, const struct plan *plan,
                                   const struct workspace_table *workspace, const struct program *resident,
                                   struct program **out);
enum status __wrap_program_compile(const struct graph *graph, const struct plan *plan,
                                   const struct workspace_table *workspace, const struct program *resident,
                                   struct program **out);

enum status __wrap_program_compile(const struct graph *graph, const struct plan *plan,
                                   const struct workspace_table *workspace, const struct program *resident,
                                   struct program **out) {
    TRY(__real_program_compile(graph, plan, workspace, resident, out));
    compiled += plan->place.rank > 0;
    if (victim > 0 && plan->place.rank == victim) (*out)->collectives.items[0].bytes /= 2;
    return STATUS_OK;
}

static const struct proved_shape {
    int ranks, tensor, stages;
} shapes[] = {{2, 1, 1}, {4, 1, 1}, {2, 2, 1}, {4, 2, 1}, {2, 1, 2}, {4, 1, 2}};

static struct plan_options options_of(const struct proved_shape *shape) {
    struct plan_options options;
    plan_options_init(&options);
    options.planned = (struct mesh){1, shape->ranks};
    SETTINGS_GIVE(&options, batch, 2 * shape->ranks);
    SETTINGS_GIVE(&options, micro_batch_sequences, 1);
    SETTINGS_GIVE(&options, sequence_length, 12);
    SETTINGS_GIVE(&options, threads, 1);
    if (shape->tensor > 1) SETTINGS_GIVE(&options, tensor_parallel, shape->tensor);
    if (shape->stages > 1) SETTINGS_GIVE(&options, pipeline_parallel, shape->stages);
    return options;
}

/* By the plain policy. `wrong` 0: all programs are right. */
static enum status plan(const struct proved_shape *shape, int wrong) {
    struct plan_options options = options_of(shape);
    struct plan_request request;
    struct session session;
    struct session_plan made;
    compiled = 0, victim = wrong;
    TRY(session_open_model(shared_model_make("llama", &shared_sizes_usual), &options, NULL, &session));
    enum status status = plan_request_make(&session, PROGRAMS_TO_TRAIN, &options, NULL, NULL, &request);
    request.policy_fixed = true;
    if (status == STATUS_OK) status = session_set_trained(&session, &request.plan.recipe);
    if (status == STATUS_OK) status = session_plan_make(&session, &request, &made);
    if (status == STATUS_OK) session_plan_free(&made);
    session_close(&session);
    return status;
}

static void programs_of_all_ranks_are_proved(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        expect_status(plan(&shapes[i], 0), STATUS_OK, NULL);
        assert_int_equal(compiled, shapes[i].ranks - 1);
    }
}

static void a_program_that_does_not_fit_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int rank = 1; rank < shapes[i].ranks; rank++)
            expect_status(plan(&shapes[i], rank), STATUS_FAILED, "program: ");
}

static void more_ranks_are_proved_one_by_one(void **state) {
    (void)state;
    expect_status(plan(&(struct proved_shape){2 * RANK_PROOF_MAX, 1, 1}, 0), STATUS_OK, NULL);
    assert_int_equal(compiled, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_of_all_ranks_are_proved),
        cmocka_unit_test(a_program_that_does_not_fit_is_refused),
        cmocka_unit_test(more_ranks_are_proved_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
