/* Concurrent measurements: all work while the first is timed, a failure of any is reported, and results are stored
 * apart from those without contention. */
#include <string.h>
#include <time.h>

#include "base/fault.h"
#include "base/folder.h"
#include "profile/cache.h"
#include "profile/link_rates.h"
#include "profile/measurement.h"
#include "profile/model.h"
#include "support/kept_profile.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { MEMBERS = 4 };

struct scene {
    atomic_int at_work[MEMBERS]; /* pieces by member */
    int fails;                   /* this member does; 0: none */
    bool seen[MEMBERS];          /* at work while the first one was */
};

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

/* Waits until each other member has worked twice more, and until the one that fails has begun. */
static enum status wait_for_all(struct scene *scene) {
    for (int member = 1; member < MEMBERS; member++) {
        int before = member == scene->fails ? -1 : atomic_load(&scene->at_work[member]);
        while (atomic_load(&scene->at_work[member]) < before + 2)
            rest();
        scene->seen[member] = true;
    }
    return STATUS_OK;
}

static enum status work(void *payload, int member, const atomic_bool *ended) {
    struct scene *scene = payload;
    if (!ended) return wait_for_all(scene);
    assert_in_range(member, 1, MEMBERS - 1);
    if (member == scene->fails) {
        atomic_fetch_add(&scene->at_work[member], 1);
        return status_set(STATUS_FAILED, "member %d fails", member);
    }
    for (; !atomic_load(ended); rest())
        atomic_fetch_add(&scene->at_work[member], 1);
    return STATUS_OK;
}

static void all_members_work_while_the_first_is_timed(void **state) {
    (void)state;
    struct scene scene = {.fails = 0};
    const struct contention contention = {.members = MEMBERS};
    assert_int_equal(contention_measure(&contention, work, &scene), STATUS_OK);
    for (int member = 1; member < MEMBERS; member++)
        assert_true(scene.seen[member]);
}

static void a_member_that_fails_is_reported(void **state) {
    (void)state;
    struct scene scene = {.fails = 2};
    const struct contention contention = {.members = MEMBERS};
    assert_int_equal(contention_measure(&contention, work, &scene), STATUS_FAILED);
    assert_string_equal(status_message(), "member 2 fails");
}

static enum status work_but_for_the_first(void *payload, int member, const atomic_bool *ended) {
    return ended ? work(payload, member, ended) : STATUS_OK;
}

static void cores_that_a_member_may_not_have_are_reported(void **state) {
    (void)state;
    struct scene scene = {.fails = 0};
    const struct contention contention = {.members = 2, .bound = true}; /* to no core at all */
    assert_int_equal(contention_measure(&contention, work_but_for_the_first, &scene), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "cores of rank 1"));
}

/* The set of cores is as before, whatever the answer. */
static void cores_that_may_not_be_had_are_found(void **state) {
    (void)state;
    cpu_set_t own, after;
    assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
    struct contention contention = {.members = 2, .bound = true, .cores = {own, own}};
    assert_true(contention_is_allowed(&contention));
    size_t core = 0;
    while (CPU_ISSET(core, &own) && core < CPU_SETSIZE - 1)
        core++;
    CPU_SET(core, &contention.cores[1]); /* one of the set is not to be had, the rest is granted */
    assert_false(contention_is_allowed(&contention));
    CPU_ZERO(&contention.cores[1]);
    assert_false(contention_is_allowed(&contention));
    contention.bound = false;
    assert_true(contention_is_allowed(&contention));
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&own, &after));
}

static void threads_that_do_not_start_are_reported(void **state) {
    (void)state;
    const struct contention contention = {.members = MEMBERS};
    for (int which = 1; which < MEMBERS; which++) {
        struct scene scene = {.fails = 0};
        fault_arm(FAULT_SUBMIT, which, false);
        enum status status = contention_measure(&contention, work, &scene);
        fault_arm(FAULT_SUBMIT, 0, false);
        assert_int_equal(status, STATUS_FAILED);
        assert_non_null(strstr(status_message(), "thread"));
    }
}

static int32_t measure_graph(const char *cache, const struct contention *contention, double *seconds) {
    struct graph *graph = kept_profile_graph();
    struct cluster cluster = kept_profile_machine();
    const struct profile_options options = {
        .cache_folder = cache, .threads = 1, .budget_s = 0.01, .contention = contention};
    struct costs costs;
    struct profile_report report;
    assert_int_equal(profile_model(&backend_cpu, graph, &cluster, &options, &costs, &report), STATUS_OK);
    int32_t measured = report.measured;
    *seconds = costs.kernels[0].seconds;
    assert_true(*seconds > 0);
    costs_free(&costs);
    profile_report_free(&report);
    graph_free(graph);
    return measured;
}

/* Gives the measurements of every file no spread, so that none is measured again. */
static void settle(const char *folder) {
    struct names names;
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        kept_profile_set(temp_path(folder, names.items[i]), 0, 0);
    names_free(&names);
}

/* Found again by as many at once, and by no others. */
static void what_is_measured_at_once_is_kept_apart(void **state) {
    const struct contention two = {.members = 2}, three = {.members = 3};
    double alone, both, again;
    assert_true(measure_graph(*state, NULL, &alone) > 0);
    assert_true(measure_graph(*state, &two, &both) > 0);
    settle(*state);
    assert_int_equal(measure_graph(*state, &two, &again), 0);
    assert_int_equal(measure_graph(*state, NULL, &again), 0);
    assert_true(again == alone);
    assert_true(measure_graph(*state, &three, &again) > 0);
}

static void a_machine_is_measured_by_all_at_once(void **state) {
    const struct contention two = {.members = 2};
    struct profile_options options = {.disk_folder = *state, .host_tier = true, .threads = 1, .contention = &two};
    struct cluster cluster = {.device = {.name = ""}};
    assert_int_equal(profile_machine(&backend_cpu, &options, &cluster, NULL), STATUS_OK);
    assert_true(cluster.device.fp32_flops_per_s > 0 && cluster.rates.zero.bytes_per_s > 0);
    assert_true(cluster.rates.copy[TIER_DEVICE][TIER_DISK].bytes_per_s > 0);
}

/* Without ranks: what ranks on the same mesh measured. */
static void links_are_found_by_their_mesh(void **state) {
    const struct contention two = {.members = 2};
    const struct profile_options options = {.cache_folder = *state, .threads = 1, .contention = &two};
    struct cluster_rates rates = {.links = {.mesh = {1, 2}, .shared = true, .read = {1e-6, 1e9}}}, found = {.noise = 0};
    static const char way[] = "an MPI, by windows";
    rates.slowdown[ACTIVITY_PRODUCT][ACTIVITY_MESSAGE] = 1.5;
    assert_int_equal(link_rates_keep(&backend_cpu, &options, way, &rates), STATUS_OK);
    assert_int_equal(link_rates_find(&backend_cpu, &options, &(struct mesh){2, 1}, NULL, &found), STATUS_OK);
    assert_int_equal(found.links.mesh.nodes, 0);
    assert_int_equal(link_rates_find(&backend_cpu, &options, &(struct mesh){1, 2}, NULL, &found), STATUS_OK);
    assert_int_equal(found.links.mesh.per_node, 2);
    assert_true(found.links.shared && found.links.read.bytes_per_s == 1e9);
    assert_true(found.slowdown[ACTIVITY_PRODUCT][ACTIVITY_MESSAGE] == 1.5);
    rates.links.read.bytes_per_s = 2e9; /* the latest counts */
    assert_int_equal(link_rates_keep(&backend_cpu, &options, way, &rates), STATUS_OK);
    assert_int_equal(link_rates_find(&backend_cpu, &options, &(struct mesh){1, 2}, NULL, &found), STATUS_OK);
    assert_true(found.links.read.bytes_per_s == 2e9);
}

static bool is_found(const struct profile_options *options, const char *way) {
    struct cluster_rates found = {.noise = 0};
    assert_int_equal(link_rates_find(&backend_cpu, options, &(struct mesh){1, 2}, way, &found), STATUS_OK);
    return found.links.mesh.nodes > 0;
}

/* Ranks measure again what was noisy, what they do another way, and what no way is known of. */
static void ranks_find_links_of_their_way_without_noise(void **state) {
    const struct profile_options options = {.cache_folder = *state, .threads = 2};
    struct cluster_rates rates = {.links = {.mesh = {1, 2}, .read = {1e-6, 1e9}}};
    for (int noisy = 0; noisy < 2; noisy++) {
        rates.noise = noisy ? 0.6 : 0.4;
        assert_int_equal(link_rates_keep(&backend_cpu, &options, "windows", &rates), STATUS_OK);
        assert_true(is_found(&options, NULL));
        assert_true(is_found(&options, "windows") == !noisy);
        assert_false(is_found(&options, "messages"));
        assert_false(is_found(&options, ""));
    }
    rates.noise = 0;
    assert_int_equal(link_rates_keep(&backend_cpu, &options, "", &rates), STATUS_OK);
    assert_true(is_found(&options, NULL) && !is_found(&options, ""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_work_while_the_first_is_timed),
        cmocka_unit_test(a_member_that_fails_is_reported),
        cmocka_unit_test(cores_that_a_member_may_not_have_are_reported),
        cmocka_unit_test(cores_that_may_not_be_had_are_found),
        cmocka_unit_test(threads_that_do_not_start_are_reported),
        cmocka_unit_test_setup_teardown(what_is_measured_at_once_is_kept_apart, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(a_machine_is_measured_by_all_at_once, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(links_are_found_by_their_mesh, temp_folder_make, temp_folder_drop),
        cmocka_unit_test_setup_teardown(ranks_find_links_of_their_way_without_noise, temp_folder_make,
                                        temp_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
