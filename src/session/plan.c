#include "session/plan.h"

#include "base/json.h"
#include "base/text.h"
#include "machine/cluster.h"
#include "plan/lane_shares.h"
#include "profile/described_device.h"
#include "session/candidate.h"
#include "session/machine_costs.h"
#include "session/programs.h"

static struct model_figures figures_of(const struct session_plan *plan, const struct graph *graph) {
    const struct model_config *config = &plan->session->model->config;
    struct model_figures figures = {.parameters = model_parameter_count(graph),
                                    .matrix_parameters = model_matrix_parameter_count(graph),
                                    .trained_parameters = model_trained_count(graph)};
    double attention =
        (double)(config->layers * config->heads * config->head_dim) * (double)(plan->chosen.recipe.sequence_length + 1);
    double forward = 2 * ((double)figures.matrix_parameters + attention);
    double backward = 4 * attention + 2 * (double)(figures.matrix_parameters + model_trained_matrix_count(graph));
    figures.flops_per_token = program_set_has(&plan->request.set, PROGRAM_STEP) ? forward + backward : forward;
    return figures;
}

/* Figures of the whole model, also with tensor parallelism. */
static enum status find_figures(struct session_plan *plan) {
    AUTO(graph_release) struct graph *whole = NULL;
    if (recipe_tensor_parallel(&plan->chosen.recipe) > 1)
        TRY(programs_build_whole(plan->session, &plan->request.set, &plan->chosen, &whole));
    plan->figures = figures_of(plan, whole ? whole : programs_main(&plan->programs)->graph);
    return STATUS_OK;
}

static enum status describe(struct session_plan *plan) {
    const struct backend *backend = plan->session->machine.backend;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        TRY(program_report_memory(programs_main(&plan->programs)->program, tier, &plan->memory[tier]));
    TRY(find_figures(plan));
    struct recipe *recipe = &plan->chosen.recipe;
    return backend->list_products ? backend->list_products(&recipe->products) : STATUS_OK;
}

/* Broadcasts the recipe and policy of rank 0. */
static enum status share_chosen(struct session_plan *plan) {
    struct comm *comm = plan->session->comm;
    AUTO_FREE char *text = NULL;
    if (comm->rank == 0) {
        json_auto_t *object = plan_to_json(&plan->chosen);
        text = object ? json_text(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    }
    TRY(comm_agree(comm, text || comm->rank > 0 ? STATUS_OK : STATUS_FAILED));
    TRY(comm_share_text(comm, &text));
    json_auto_t *object = json_loads(text, 0, NULL);
    TRY(object ? plan_from_json("the plan of rank 0", object, &plan->chosen) : STATUS_FAILED);
    plan->chosen.place = candidate_place(plan->session, &plan->chosen.place);
    return STATUS_OK;
}

/* Rank 0 proves the steps of all ranks. */
static enum status prove_ranks(const struct session_plan *plan) {
    const struct executable *step = plan->programs.of[PROGRAM_STEP];
    return step ? rank_proof_make(plan->session, &plan->request.set, step, &plan->chosen) : STATUS_OK;
}

static void take(const struct plan_candidate *candidate, struct session_plan *plan) {
    plan->chosen = candidate->plan;
    plan->programs = candidate->programs;
    plan->min_bytes = candidate->min_bytes;
    plan->search = candidate->search;
    plan->costs = candidate->costs;
}

static enum status choose(struct session_plan *plan) {
    struct plan_candidate chosen;
    TRY(choose_candidate(plan->session, &plan->request, &plan->shapes, &chosen));
    take(&chosen, plan);
    return STATUS_OK;
}

/* Compiles rank 0's choice. */
static enum status compile(struct session_plan *plan) {
    struct plan_candidate chosen = candidate_begin(plan->session, &plan->request, &plan->chosen);
    TRY(candidate_compile(&chosen));
    take(&chosen, plan);
    return STATUS_OK;
}

/* Also for planned ranks. */
static enum status choose_alone(struct session_plan *plan) {
    TRY(choose(plan));
    TRY(programs_prove(&plan->programs));
    return prove_ranks(plan);
}

/* Rank 0 measures and searches, and its plan holds for all ranks, since measurements differ between them. Each rank
 * compiles its own programs; meanwhile rank 0 proves that they fit together. */
static enum status choose_together(struct session_plan *plan) {
    struct comm *comm = plan->session->comm;
    TRY(comm_agree(comm, comm->rank == 0 ? choose(plan) : STATUS_OK));
    enum status status = share_chosen(plan);
    if (status == STATUS_OK) status = comm->rank > 0 ? compile(plan) : prove_ranks(plan);
    if (status == STATUS_OK) status = programs_prove(&plan->programs);
    return comm_agree(comm, status);
}

enum status session_plan_make(const struct session *session, const struct plan_request *request,
                              struct session_plan *out) {
    AUTO(session_plan_free)
    struct session_plan plan = {
        .session = session, .request = *request, .shapes = request->shapes, .chosen = request->plan};
    plan.request.shapes = (struct rank_shapes){0};
    plan.chosen.place = candidate_place(session, &plan.chosen.place);
    TRY(session_ranks(session) > 1 ? choose_together(&plan) : choose_alone(&plan));
    TRY(describe(&plan));
    *out = TAKE(plan);
    return STATUS_OK;
}

void session_plan_free(struct session_plan *plan) {
    stage_steps_free(&plan->stages);
    costs_free(&plan->costs);
    search_result_free(&plan->search);
    programs_free(&plan->programs);
    rank_shapes_free(&plan->shapes);
    *plan = (struct session_plan){.session = NULL};
}

static enum status set_trained(struct session *session, struct plan_request *request) {
    TRY(session_set_trained(session, &request->plan.recipe));
    for (size_t i = 0; i < request->shapes.list.count; i++) {
        struct recipe *recipe = &request->shapes.list.items[i].plan->recipe;
        memcpy(recipe->lora, request->plan.recipe.lora, sizeof recipe->lora);
        memcpy(recipe->freeze, request->plan.recipe.freeze, sizeof recipe->freeze);
        recipe->quantize_base = request->plan.recipe.quantize_base;
    }
    return STATUS_OK;
}

static enum status warn_of_idle_lanes(const struct session *session, const struct plan *plan) {
    return session->comm->rank == 0 ? idle_lanes_warn(plan) : STATUS_OK;
}

/* `made`: the status of the request. Takes its shapes over. If these are open, lanes are known once one is chosen. On
 * failure the session is closed. */
static enum status plan_agreed(struct session *session, struct plan_request *request, enum status made,
                               struct session_plan *out) {
    enum status status = made;
    bool trains = program_set_has(&request->set, PROGRAM_STEP), open = request->shapes.list.count > 0;
    if (trains && status == STATUS_OK) status = set_trained(session, request);
    if (trains && !open && status == STATUS_OK) status = warn_of_idle_lanes(session, &request->plan);
    status = comm_agree(session->comm, status);
    if (status == STATUS_OK)
        status = session_plan_make(session, request, out);
    else
        rank_shapes_free(&request->shapes);
    if (trains && open && status == STATUS_OK) {
        status = comm_agree(session->comm, warn_of_idle_lanes(session, &out->chosen));
        if (status != STATUS_OK) session_plan_free(out);
    }
    if (status != STATUS_OK) session_close(session);
    return status;
}

enum status session_begin(const char *model_folder, unsigned uses, const struct plan_options *options,
                          const struct train_options *training, struct session *session, struct session_plan *plan) {
    struct plan_request request = {.origin = NULL};
    struct plan read;
    const struct plan *base = SETTINGS_HAVE(options, plan_path) ? &read : NULL;
    if (base) TRY(comm_agree(options->comm, plan_read(options->plan_path, &read)));
    TRY(session_open(model_folder, options, base ? &base->recipe : NULL, session));
    /* Evaluation covers the model's loss on tokens, not its balance among experts. */
    if (uses == PROGRAMS_TO_EVALUATE || uses == PROGRAMS_TO_REFER) session->model->config.balances_experts = false;
    enum status status = STATUS_OK;
    if (base) status = plan_document_check_model(options->plan_path, &session->model->config);
    if (status == STATUS_OK) status = plan_request_make(session, uses, options, training, base, &request);
    return plan_agreed(session, &request, status, plan);
}

enum status session_begin_decided(const char *model_folder, const struct plan *decided,
                                  const struct plan_options *options, const struct train_options *training,
                                  struct session *session, struct session_plan *plan) {
    struct plan_request request = plan_request_decided(decided, options, training);
    TRY(session_open(model_folder, options, &decided->recipe, session));
    return plan_agreed(session, &request, plan_request_add_stages(session, options, &request), plan);
}

enum status session_begin_step(const char *model_folder, const struct plan *decided, const char *origin,
                               const struct plan_options *options, struct session *session, struct session_plan *plan) {
    struct plan_request request = {.origin = NULL};
    TRY(session_open(model_folder, options, &decided->recipe, session));
    return plan_agreed(session, &request, plan_request_step(session, decided, origin, &request), plan);
}

enum status session_plan_renew(const struct session_plan *now, const struct policy *policy, const struct costs *costs,
                               struct session_plan *out) {
    struct plan_request request = now->request;
    request.plan = now->chosen;
    request.recipe_fixed = true;
    request.policy_fixed = policy != NULL;
    request.origin = NULL;
    request.costs = costs;
    request.plan.policy = policy ? *policy : policy_begin(&now->request, &now->chosen.policy);
    if (costs) { /* the costs belong to its graph */
        request.plan.policy.tile_tokens = now->chosen.policy.tile_tokens;
        request.plan.policy.selective_recompute = now->chosen.policy.selective_recompute;
    }
    enum status made = session_plan_make(now->session, &request, out), status = made;
    if (made == STATUS_OK && costs) status = session_plan_measure(out);
    status = comm_agree(now->session->comm, status);
    if (made == STATUS_OK) out->request = now->request;
    if (made == STATUS_OK && status != STATUS_OK) session_plan_free(out);
    return status;
}

enum status session_plan_measure(struct session_plan *plan) {
    if (plan->costs.kernels) return STATUS_OK;
    return programs_measure_costs(plan->session, &plan->request, &plan->programs, &plan->costs);
}

enum status session_plan_find_costs(struct session_plan *plan) {
    if (plan->costs.kernels) return STATUS_OK;
    return machine_costs_find(&plan->session->machine, &plan->programs, &plan->costs);
}

/* The plan's step at the costs of one end of the device's range. */
static enum status predict_end(const struct session_plan *plan, enum roofline_case which, double *step_s) {
    AUTO(stage_steps_free) struct stage_steps steps = {0};
    AUTO(costs_free) struct costs costs = {0};
    TRY(machine_costs_described(&plan->session->machine, &plan->programs, which, &costs));
    TRY(stage_steps_make(programs_main(&plan->programs), &plan->chosen, &costs, &steps));
    *step_s = steps.step_s;
    return STATUS_OK;
}

enum status session_plan_predict(struct session_plan *plan, struct step_summary *out) {
    *out = (struct step_summary){.step_s = 0};
    stage_steps_free(&plan->stages);
    TRY(stage_steps_make(programs_main(&plan->programs), &plan->chosen, &plan->costs, &plan->stages));
    step_summarise(&plan->stages.list[rank_place_stage(&plan->chosen.place)].timeline, &plan->costs, out);
    if (plan->session->machine.backend != &backend_described) return STATUS_OK;
    TRY(predict_end(plan, ROOFLINE_FAST, &out->fastest_s));
    return predict_end(plan, ROOFLINE_SLOW, &out->slowest_s);
}

/* ---- why no plan fits, and which would ---- */

enum { SEQUENCE_MIN = 32 };

/* The minimum memory of the same request with another plan, in tiers of these capacities. */
static enum status find_min_memory(const struct session_plan *plan, const struct plan *other,
                                   const int64_t capacity_bytes[TIER_COUNT], struct min_memory *out) {
    struct plan_request request = plan->request;
    request.plan = *other;
    return choose_min_memory(plan->session, &request, capacity_bytes, out);
}

/* The same plan with a disk of any size. A fixed policy has fixed sizes. */
static enum status find_with_disk(const struct session_plan *plan, struct min_memory *out) {
    int64_t capacity_bytes[TIER_COUNT];
    *out = (struct min_memory){.min_bytes = INT64_MAX};
    if (plan->request.policy_fixed) return STATUS_OK;
    memcpy(capacity_bytes, plan->session->machine.capacity_bytes, sizeof capacity_bytes);
    capacity_bytes[TIER_DISK] = INT64_MAX / 4;
    return find_min_memory(plan, &plan->chosen, capacity_bytes, out);
}

/* Reduces the plan's memory by the smallest change first: fewer micro-batches per wave, smaller micro-batches, then
 * shorter sequences. Only the first if the recipe is fixed. False after the last. */
static bool reduce_plan(struct plan *plan, bool recipe_fixed) {
    struct recipe *recipe = &plan->recipe;
    if (plan->policy.micro_batches_per_wave > 1)
        plan->policy.micro_batches_per_wave = 1;
    else if (recipe_fixed)
        return false;
    else if (recipe->micro_batch_sequences > recipe_together(recipe))
        recipe->micro_batch_sequences = recipe_together(recipe);
    else if (recipe->sequence_length >= 2 * SEQUENCE_MIN)
        recipe->sequence_length /= 2;
    else
        return false;
    return true;
}

static void describe_change(const struct plan *from, const struct plan *to, char text[128]) {
    text[0] = '\0';
    if (from->policy.micro_batches_per_wave != to->policy.micro_batches_per_wave)
        text_add(text, 128, "--micro-batches-per-wave 1");
    if (from->recipe.micro_batch_sequences != to->recipe.micro_batch_sequences)
        text_add(text, 128, "%s--micro-batch %" PRId64, text[0] ? ", " : "", to->recipe.micro_batch_sequences);
    if (from->recipe.sequence_length != to->recipe.sequence_length)
        text_add(text, 128, "%s--seq %" PRId64, text[0] ? ", " : "", to->recipe.sequence_length);
}

/* The first plan that fits, else the first with the fewest bytes. `min` is initially the plan's. */
static enum status find_fit(const struct session_plan *plan, struct plan *out, struct min_memory *min) {
    struct plan other = plan->chosen;
    *out = other;
    while (!min->fits && reduce_plan(&other, plan->request.recipe_fixed)) {
        struct min_memory found;
        TRY(find_min_memory(plan, &other, plan->session->machine.capacity_bytes, &found));
        if (!found.fits && found.min_bytes >= min->min_bytes) continue;
        *min = found;
        *out = other;
    }
    return STATUS_OK;
}

enum { TOTAL_BYTES = 64 };

/* The memory of some virtual machines grows on demand, so that less is available than can be had. */
static const char *describe_total(char text[TOTAL_BYTES]) {
    struct cluster_memory memory;
    char size[SIZE_TEXT];
    cluster_find_memory(&memory);
    snprintf(text, TOTAL_BYTES, " (MemTotal is %s now)", size_print(memory.total_bytes, size));
    return text;
}

/* Only a given plan can exceed the tiers below the device. */
static enum status check_lower_tier(const struct session_plan *plan, enum tier tier) {
    static const char *const options[] = {[TIER_HOST] = "--host-memory SIZE", [TIER_DISK] = "--disk DIR"};
    int64_t bytes = plan->programs.tier_bytes[tier], capacity = plan->session->machine.capacity_bytes[tier];
    char need[SIZE_TEXT], there[SIZE_TEXT], total[TOTAL_BYTES];
    if (bytes <= capacity) return STATUS_OK;
    enum status status = status_set(STATUS_NO_FIT, "no plan fits: the %s tier needs %s of the %s that there are",
                                    tier_name(tier), size_print(bytes, need), size_print(capacity, there));
    return status_hint(status, "give it more by %s%s, or another plan", options[tier],
                       tier == TIER_HOST ? describe_total(total) : "");
}

/* The memory that the processes of this host lack, by current use and by use when the capacity was measured. Ranks
 * measure it at different moments of each other's start, so values differ by a few hundred KiB. */
static enum status find_missing(const struct machine *machine, int processes, int64_t device_bytes, int64_t *missing) {
    enum { START_BYTES = 1 << 20 };
    int64_t lack = device_bytes - machine->capacity_bytes[TIER_DEVICE];
    int64_t then = (int64_t)(processes * (double)lack / (1 - CLUSTER_RESERVE_FRACTION));
    struct cluster_memory memory;
    TRY(cluster_measure_memory(&memory));
    *missing = cluster_memory_missing(&memory, processes, device_bytes + machine->limits.host_bytes);
    if (*missing < then) *missing = then;
    if (processes > 1) *missing += (int64_t)processes * START_BYTES;
    return STATUS_OK;
}

/* Describes how to get a device tier of so many bytes: by the option, or, if the tier is the free memory of the system,
 * by freeing the missing memory. */
static enum status describe_memory(const struct session_plan *plan, int64_t device_bytes, char text[64]) {
    const struct machine *machine = &plan->session->machine;
    char size[SIZE_TEXT];
    if (SETTINGS_HAVE(&machine->limits, device_bytes) || machine->backend->memory) {
        snprintf(text, 64, "--device-memory %s", size_print_option(device_bytes, size));
        return STATUS_OK;
    }
    int processes = machine->sharers > 1 ? machine->sharers : 1;
    int64_t missing;
    TRY(find_missing(machine, processes, device_bytes, &missing));
    snprintf(text, 64, "%s more memory for the process%s", size_print_up(missing, size), processes > 1 ? "es" : "");
    return STATUS_OK;
}

/* The rate of transfers large enough to hide latency; 0: not measured. */
static double gb_per_s(const struct transfer_rate *rate) {
    enum { PIECE_BYTES = 1 << 24 };
    if (!(rate->bytes_per_s > 0)) return 0;
    return PIECE_BYTES * 1e-9 / (rate->latency_s + PIECE_BYTES / rate->bytes_per_s);
}

/* "; DIR has 57.9 GiB free, of which the disk tier may take 500 MiB; it reads 1.20 GB/s and writes 0.90 GB/s". Unknown
 * rates are omitted. */
static enum status describe_disk(const struct session_plan *plan, int64_t free_bytes, char **out) {
    const struct machine *machine = &plan->session->machine;
    struct cluster cluster = {.rates.measured = false};
    char there[SIZE_TEXT], size[SIZE_TEXT], taken[64] = "", rates[64] = "";
    if (SETTINGS_HAVE(&machine->limits, disk_bytes) && machine->capacity_bytes[TIER_DISK] < free_bytes)
        snprintf(taken, sizeof taken, ", of which the disk tier may take %s",
                 size_print(machine->capacity_bytes[TIER_DISK], size));
    bool leads = plan->session->comm->rank == 0;
    if (leads && machine_measure(machine, plan->chosen.threads, &(struct measuring){0}, &cluster) != STATUS_OK)
        status_clear();
    double read = gb_per_s(&cluster.rates.copy[TIER_DISK][TIER_DEVICE]);
    double write = gb_per_s(&cluster.rates.copy[TIER_DEVICE][TIER_DISK]);
    if (read > 0 && write > 0) snprintf(rates, sizeof rates, "; it reads %.2f GB/s and writes %.2f GB/s", read, write);
    *out = mem_format("; %s has %s free%s%s", machine->limits.disk_folder, size_print(free_bytes, there), taken, rates);
    return *out ? STATUS_OK : STATUS_FAILED;
}

/* Proposes a disk ("--disk DIR with 1.31 GiB free; or "), or less device memory with a larger disk. */
static enum status offer_disk(const struct session_plan *plan, const struct min_memory *with_disk, int64_t needed,
                              int64_t free_bytes, char **out) {
    const struct memory_options *limits = &plan->session->machine.limits;
    const char *folder = SETTINGS_HAVE(limits, disk_folder) ? limits->disk_folder : "DIR";
    bool given = SETTINGS_HAVE(limits, disk_folder);
    int64_t bytes = with_disk->tier_bytes[TIER_DISK];
    char size[SIZE_TEXT], memory[64];
    if (!with_disk->fits && (!given || with_disk->min_bytes >= needed))
        *out = mem_string("");
    else if (!with_disk->fits) {
        TRY(describe_memory(plan, with_disk->min_bytes, memory));
        *out = mem_format("%s with a larger --disk; or ", memory);
    } else if (!given)
        *out = mem_format("--disk DIR with %s free; or ", size_print_up(bytes, size));
    else if (free_bytes >= bytes)
        *out = mem_format("--disk %s:%s; or ", folder, size_print_option(bytes, size));
    else
        *out = mem_format("--disk DIR on a file system with %s free; or ", size_print_up(bytes, size));
    return *out ? STATUS_OK : STATUS_FAILED;
}

/* Hints at everything that would fit: a smaller plan, a disk, more memory. Each was compiled. `disk`: text about the
 * given disk. */
static enum status hint_fit(const struct session_plan *plan, const struct plan *other, const struct min_memory *min,
                            int64_t needed, const char *offer, const char *disk) {
    char size[SIZE_TEXT], change[128], memory[64], small_memory[64], less[256] = "", small[256] = "";
    describe_change(&plan->chosen, other, change);
    TRY(describe_memory(plan, needed, memory));
    TRY(describe_memory(plan, min->min_bytes, small_memory));
    bool saves = min->min_bytes < needed && strcmp(memory, small_memory) != 0;
    if (min->fits) snprintf(less, sizeof less, "%s would fit (%s); or ", change, size_print(min->min_bytes, size));
    if (!min->fits && saves) snprintf(small, sizeof small, "; or %s with %s", small_memory, change);
    return status_hint(STATUS_NO_FIT, "%s%s%s%s%s", less, offer, memory, small, disk);
}

static enum status refuse_device(const struct session_plan *plan, int64_t needed) {
    const struct machine *machine = &plan->session->machine;
    struct min_memory min = {.min_bytes = needed}, with_disk;
    struct plan other;
    char need[SIZE_TEXT], over[SIZE_TEXT], there[SIZE_TEXT];
    AUTO_FREE char *offer = NULL, *disk = NULL;
    int64_t capacity = machine->capacity_bytes[TIER_DEVICE], free_bytes = 0;
    TRY(find_fit(plan, &other, &min));
    TRY(find_with_disk(plan, &with_disk));
    bool given = SETTINGS_HAVE(&machine->limits, disk_folder);
    if (given) TRY(machine_measure_disk(machine->limits.disk_folder, &free_bytes));
    TRY(offer_disk(plan, &with_disk, needed, free_bytes, &offer));
    if (given) TRY(describe_disk(plan, free_bytes, &disk));
    machine->backend->set_threads(plan->chosen.threads);
    status_set(STATUS_NO_FIT, "no plan fits: the device tier needs %s, %s more than the %s that there are",
               size_print(needed, need), size_print(needed - capacity, over), size_print(capacity, there));
    return hint_fit(plan, &other, &min, needed, offer, disk ? disk : "");
}

enum status session_plan_check_memory(const struct session_plan *plan) {
    const struct machine *machine = &plan->session->machine;
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        TRY(check_lower_tier(plan, tier));
    int64_t bytes = plan->programs.tier_bytes[TIER_DEVICE];
    if (bytes <= machine->capacity_bytes[TIER_DEVICE]) return STATUS_OK;
    return refuse_device(plan, plan->request.policy_fixed ? bytes : plan->min_bytes);
}
