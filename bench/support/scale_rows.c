#include "support/scale_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "machine/cluster.h"
#include "search/scale/forecast.h"
#include "search/scale/training.h"
#include "support/published_systems.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)

/* The fields that matter; numbers are 0 and texts "" where they are missing. */
struct fields {
    int64_t id, hidden, layers, heads, kv_heads, ffn, vocab, seq, gpus, gpus_per_node, tp, pp, cp, dp, vp, interleave,
        micro_batch, grad_accum, global_batch_seqs, layers_per_virtual_stage, experts, top_k, ep;
    double sec_per_iter, sec_per_iter_derived, tokens_per_s_per_gpu, mfu, gpu_peak_tflops_used,
        model_gflop_per_token_recomputed, mem_gb, mem_gib, mem_mib;
    const char *src, *model, *hw, *inter_node, *framework, *sharding, *precision, *act_ckpt, *overlap, *note, *ffn_note;
};

#define INTEGER(field, min, max)                                                                                       \
    { #field, offsetof(struct fields, field), min, max }
static const struct {
    const char *name;
    size_t offset;
    int64_t min, max;
} integers[] = {INTEGER(id, 0, INT64_MAX),
                INTEGER(hidden, 1, 1 << 20),
                INTEGER(layers, 1, 1 << 14),
                INTEGER(heads, 1, 1 << 16),
                INTEGER(kv_heads, 1, 1 << 16),
                INTEGER(ffn, 1, 1 << 22),
                INTEGER(vocab, 1, 1 << 27),
                INTEGER(seq, 1, 1 << 24),
                INTEGER(gpus, 1, 1 << 24),
                INTEGER(gpus_per_node, 1, 1 << 16),
                INTEGER(tp, 1, 1 << 16),
                INTEGER(pp, 1, 1 << 16),
                INTEGER(cp, 1, 1 << 16),
                INTEGER(dp, 1, 1 << 24),
                INTEGER(vp, 1, 1 << 16),
                INTEGER(interleave, 1, 1 << 16),
                INTEGER(micro_batch, 1, 1 << 16),
                INTEGER(grad_accum, 1, 1 << 16),
                INTEGER(global_batch_seqs, 1, 1 << 30),
                INTEGER(layers_per_virtual_stage, 1, 1 << 16),
                INTEGER(experts, 1, 1 << 16),
                INTEGER(top_k, 1, 1 << 16),
                INTEGER(ep, 1, 1 << 16)};
#undef INTEGER

#define DOUBLE(field)                                                                                                  \
    { #field, offsetof(struct fields, field) }
static const struct {
    const char *name;
    size_t offset;
} doubles[] = {DOUBLE(sec_per_iter),
               DOUBLE(sec_per_iter_derived),
               DOUBLE(tokens_per_s_per_gpu),
               DOUBLE(mfu),
               DOUBLE(gpu_peak_tflops_used),
               DOUBLE(model_gflop_per_token_recomputed),
               DOUBLE(mem_gb),
               DOUBLE(mem_gib),
               DOUBLE(mem_mib)},
  texts[] = {DOUBLE(src),       DOUBLE(model),    DOUBLE(hw),        DOUBLE(inter_node),
             DOUBLE(framework), DOUBLE(sharding), DOUBLE(precision), DOUBLE(act_ckpt),
             DOUBLE(overlap),   DOUBLE(note),     DOUBLE(ffn_note)};
#undef DOUBLE

static enum status read_fields(const char *where, const json_t *row, struct fields *out) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        TRY(json_read_int(where, row, integers[i].name, integers[i].min, integers[i].max,
                          (int64_t *)((char *)out + integers[i].offset)));
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        TRY(json_read_double(where, row, doubles[i].name, 1e-9, 1e18, (double *)((char *)out + doubles[i].offset)));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char **text = (const char **)((char *)out + texts[i].offset);
        *text = "";
        TRY(json_read_string(where, row, texts[i].name, text));
    }
    return STATUS_OK;
}

static bool holds(const char *text, const char *part) { return strcasestr(text, part) != NULL; }

static bool leave_out(struct scale_row *row, const char *why) {
    snprintf(row->why, sizeof row->why, "%s", why);
    return false;
}

/* --- the transformer --- */

static bool is_llama(const struct fields *fields) {
    return holds(fields->model, "llama") || holds(fields->model, "internlm") || holds(fields->ffn_note, "swiglu");
}

/* Two thirds of 4 x hidden, in multiples of 256, as Llama's rule is; its 70B model of 2023 has 28672. */
static int64_t gated_ffn(const struct fields *fields) {
    if (fields->hidden == 8192 && fields->layers == 80 && fields->kv_heads == 8) return 28672;
    int64_t width = 8 * fields->hidden / 3;
    return (width + 255) / 256 * 256;
}

static struct transformer transformer_of(const struct fields *fields) {
    bool llama = is_llama(fields);
    return (struct transformer){
        .hidden = fields->hidden,
        .layers = fields->layers,
        .heads = fields->heads,
        .kv_heads = fields->kv_heads ? fields->kv_heads : fields->heads,
        .ffn = fields->ffn ? fields->ffn
               : llama     ? gated_ffn(fields)
                           : 4 * fields->hidden,
        .vocab = fields->vocab ? fields->vocab
                 : llama       ? 32000
                               : 51200,
        .gated = llama,
        .tied = !llama,
        .experts = fields->experts,
        .experts_a_token = fields->top_k,
    };
}

/* --- the cluster --- */

static const struct {
    const char *part, *preset;
    bool measured; /* the preset has what its network was measured to reach; rows have the data sheet's rate */
} machines[] = {{"GB200", NULL, false},
                {"GB300", NULL, false},
                {"TPU", NULL, false},
                {"A800", "a800x8", false},
                {"Jean Zay", "jean-zay-a100x8", true},
                {"A100-40GB", "a100-40x8", false},
                {"A100", "a100-80x8", false},
                {"H100-9", "h100-96x8", false},
                {"H100", "h100x8", false},
                {"H200", "h200x8", false},
                {"B200", "b200x8", false},
                {"DGX-2", "v100x16", false},
                {"V100", "v100x8", false},
                {"3090", "rtx3090x8", false},
                {"4090", "rtx4090x8", false}};

/* "4x100 Gb/s ...", "800 Gb/s per node", "400 Gb/s RDMA per GPU", "2 Tb/s"; 0: the text says no rate. */
static double network_bytes_per_s(const char *text, int64_t devices) {
    const char *unit = strstr(text, " Gb/s");
    double scale = 1e9 / 8;
    if (!unit) {
        unit = strstr(text, " Tb/s");
        scale = 1e12 / 8;
    }
    if (!unit) return 0;
    const char *from = unit;
    while (from > text && (from[-1] == '.' || (from[-1] >= '0' && from[-1] <= '9')))
        from--;
    double rate = strtod(from, NULL) * scale;
    if (from > text && from[-1] == 'x') {
        const char *count = from - 1;
        while (count > text && count[-1] >= '0' && count[-1] <= '9')
            count--;
        rate *= strtod(count, NULL);
    }
    return strstr(text, "per GPU") ? rate * (double)devices : rate;
}

static enum status find_cluster(const struct fields *fields, struct scale_row *row) {
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        if (!holds(fields->hw, machines[i].part)) continue;
        if (!machines[i].preset) break;
        struct cluster *cluster = &row->job.cluster;
        TRY(cluster_open(machines[i].preset, cluster));
        if (fields->gpus_per_node) cluster->network.devices = fields->gpus_per_node;
        double rate = network_bytes_per_s(fields->inter_node, cluster->network.devices);
        if (rate > 0 && !machines[i].measured) cluster->network.node_bytes_per_s = rate;
        row->described = true;
        return STATUS_OK;
    }
    (void)leave_out(row, "no machine that is known");
    return STATUS_OK;
}

/* --- the layout --- */

/* "8x4": 32; "8x1": 8; "RxN": all. */
static int64_t shape_size(const char *text, int64_t all) {
    const long max = 1 << 24; /* more is no shape, and divides no number of ranks */
    if (text[0] == 'R') return all;
    char *end;
    long near = strtol(text, &end, 10), nodes = *end == 'x' ? strtol(end + 1, NULL, 10) : 1;
    if (near < 1 || nodes < 1) return 1;
    return near > max || nodes > max ? INT64_MAX : near * nodes;
}

/* "P=4x1,G=4x1,OS=8x4", "P=G=OS over 8", "P replicated ..., OS over all DP", "ZeRO-1 ...", "none ...". */
static bool find_partition(const char *text, int64_t all, struct partition_triple *out) {
    const char *over = strstr(text, "over ");
    int64_t cut = over && over[5] >= '1' && over[5] <= '9' ? strtol(over + 5, NULL, 10) : all;
    const char *p = strstr(text, "P="), *g = strstr(text, "G="), *os = strstr(text, "OS=");
    if (p && strncmp(p, "P=G=OS", 6) == 0)
        *out = (struct partition_triple){cut, cut, cut};
    else if (p && g && os)
        *out = (struct partition_triple){shape_size(p + 2, all), shape_size(g + 2, all), shape_size(os + 3, all)};
    else if (holds(text, "replicated") || holds(text, "P,G"))
        *out = (struct partition_triple){1, 1, cut};
    else if (holds(text, "ZeRO-3") || holds(text, "FSDP") || holds(text, "full shard"))
        *out = (struct partition_triple){cut, cut, cut};
    else if (holds(text, "ZeRO-2"))
        *out = (struct partition_triple){1, all, all};
    else if (holds(text, "ZeRO-1") || holds(text, "distributed"))
        *out = (struct partition_triple){1, 1, all};
    else if (holds(text, "none") || text[0] == '\0')
        *out = (struct partition_triple){1, 1, 1};
    else
        return false;
    if (out->optimizer > all) out->optimizer = all;
    return true;
}

/* "hpZ secondary P 8x1", "hpZ secondary P in node"; 0: there is none. */
static int64_t second_copy(const char *text, int64_t node) {
    static const char name[] = "secondary P ";
    const char *at = strstr(text, name);
    if (!at) return 0;
    at += sizeof name - 1;
    return *at >= '1' && *at <= '9' ? shape_size(at, node) : node;
}

static enum recomputation find_recomputation(const struct fields *fields) {
    const char *text = fields->act_ckpt;
    if (holds(text, "none/selective") || holds(text, "attn") || holds(text, "selective+SP")) return RECOMPUTE_ATTENTION;
    if (holds(text, "full")) return RECOMPUTE_FULL;
    if (holds(text, "selective") || holds(text, "SAC")) return RECOMPUTE_HALF;
    return RECOMPUTE_NONE;
}

static int64_t or_one(int64_t value) { return value > 0 ? value : 1; }

static int64_t chunks_of(const struct fields *fields, int64_t pipeline) {
    int64_t each = fields->layers_per_virtual_stage;
    int64_t chunks = each > 0 ? fields->layers / (or_one(pipeline) * each) : or_one(fields->vp | fields->interleave);
    return chunks * pipeline <= fields->layers ? or_one(chunks) : 1;
}

/* The batch as the row says it, or the product of what it says. */
static bool find_batch(const struct fields *fields, struct scale_row *row) {
    struct layout *layout = &row->job.layout;
    int64_t rank_batch = fields->global_batch_seqs / layout->data;
    if (fields->global_batch_seqs == 0) rank_batch = fields->micro_batch * or_one(fields->grad_accum);
    if (rank_batch == 0) return leave_out(row, "no batch");
    layout->micro_batch = fields->micro_batch ? fields->micro_batch : 1;
    row->picks_micro_batch = fields->micro_batch == 0;
    row->picks_chunks = !fields->vp && !fields->interleave && !fields->layers_per_virtual_stage;
    if (layout->micro_batch > rank_batch) return leave_out(row, "the micro-batch is larger than a rank's batch");
    layout->micro_batches = rank_batch / layout->micro_batch;
    return true;
}

static bool find_layout(const struct fields *fields, struct scale_row *row) {
    struct layout *layout = &row->job.layout;
    *layout = (struct layout){.tensor = or_one(fields->tp),
                              .pipeline = or_one(fields->pp),
                              .context = or_one(fields->cp),
                              .sequence_length = fields->seq,
                              .expert = fields->ep,
                              .recomputation = find_recomputation(fields)};
    if (!fields->tp && !fields->pp && !fields->dp) return leave_out(row, "no layout");
    int64_t others = layout->tensor * layout->pipeline * layout->context;
    layout->data = fields->gpus / others;
    if (layout->data < 1 || layout->data * others != fields->gpus)
        return leave_out(row, "the layout does not give the number of devices");
    layout->virtual_stages = chunks_of(fields, layout->pipeline);
    if (!find_partition(fields->sharding, layout->data * layout->context, &layout->partition))
        return leave_out(row, "a partition of states that is not described");
    layout->second_parameters = second_copy(fields->sharding, row->job.cluster.network.devices);
    return find_batch(fields, row);
}

/* --- the system --- */

static bool find_system(const struct fields *fields, struct scale_row *row) {
    const struct training_system *system = training_system_find(fields->framework);
    if (!system) return leave_out(row, "no training system that is known");
    struct training_system *mine = &row->job.system;
    *mine = *system;
    if (holds(fields->precision, "PURE")) mine->gradient_bytes = 2;
    /* Megatron-DeepSpeed's for bf16 keeps a pass's gradients until it adds all to their sums (DeepSpeed,
     * runtime/bf16_optimizer.py, update_hp_grads), so it takes 4 bytes more, as BigScience's notes have it. */
    if (holds(fields->precision, "fp32 grad")) mine->gradient_bytes = 4, mine->pass_bytes = 2, mine->state_bytes += 2;
    if (holds(fields->note, "eager")) system_set(mine, FUSED_KERNELS, false);
    row->job.layout.sequence =
        row->job.layout.tensor > 1 && (system_has(mine, CUTS_SEQUENCE) || holds(fields->act_ckpt, "sequence"));
    if (fields->overlap[0] != '\0') {
        system_set(mine, OVERLAPS_PARAMETERS, holds(fields->overlap, "AG"));
        system_set(mine, OVERLAPS_GRADIENTS, holds(fields->overlap, "AR"));
        system_set(mine, OVERLAPS_UPDATE, holds(fields->overlap, "BC"));
    }
    return true;
}

/* What a row leaves open about recomputation, or to a default, is the least that fits. */
static void fit_recomputation(const struct fields *fields, struct scale_row *row) {
    enum recomputation *kind = &row->job.layout.recomputation;
    struct calibration calibration = calibration_default();
    row->picks_recomputation =
        fields->act_ckpt[0] == '\0' || *kind == RECOMPUTE_HALF || holds(fields->act_ckpt, "default");
    for (; row->picks_recomputation && *kind < RECOMPUTE_FULL; (*kind)++) {
        struct job_costs costs;
        job_costs_find(&row->job, &calibration, &costs);
        if (rank_memory_max(&costs).total <= (double)row->job.cluster.device.tiers[0].capacity_bytes) return;
    }
}

/* --- what was published --- */

static double published_step_s(const struct fields *fields, const struct scale_row *row) {
    const struct layout *layout = &row->job.layout;
    double tokens =
        (double)(layout->data * layout->micro_batch * layout->micro_batches) * (double)layout->sequence_length;
    double devices = (double)fields->gpus;
    if (fields->sec_per_iter > 0) return fields->sec_per_iter;
    if (fields->sec_per_iter_derived > 0) return fields->sec_per_iter_derived;
    if (fields->tokens_per_s_per_gpu > 0) return tokens / (fields->tokens_per_s_per_gpu * devices);
    if (fields->mfu <= 0 || fields->model_gflop_per_token_recomputed <= 0) return 0;
    return tokens * fields->model_gflop_per_token_recomputed /
           (1000 * fields->mfu * fields->gpu_peak_tflops_used * devices);
}

static double published_bytes(const struct fields *fields) {
    if (fields->mem_gb > 0) return fields->mem_gb * 1e9;
    return fields->mem_gib > 0 ? fields->mem_gib * 0x1p30 : fields->mem_mib * 0x1p20;
}

/* Where they are not given: 64 in wide models, else heads of 128. */
static int64_t usual_heads(int64_t hidden) { return hidden >= 8192 && hidden % 64 == 0 ? 64 : (hidden + 127) / 128; }

static bool has_dimensions(struct fields *fields, struct scale_row *row) {
    if (fields->hidden && !fields->heads) fields->heads = usual_heads(fields->hidden);
    if (!fields->hidden || !fields->layers) return leave_out(row, "no dimensions");
    if (fields->hidden % fields->heads != 0) return leave_out(row, "the heads do not divide the hidden size");
    if (fields->experts && !fields->top_k) return leave_out(row, "experts, but not how many a token visits");
    if (!fields->seq) return leave_out(row, "no sequence length");
    if (!fields->gpus) return leave_out(row, "no number of devices");
    return true;
}

static bool has_precision(const struct fields *fields, struct scale_row *row) {
    if (holds(fields->precision, "fp8") || holds(fields->precision, "fp4")) return leave_out(row, "fp8 or less");
    return holds(fields->precision, "16") || leave_out(row, "no precision");
}

/* The micro-batch and the number of them are known here; a row may still contradict itself. */
static void check_job(struct scale_row *row) {
    if (training_check(&row->job) == STATUS_OK) return;
    row->described = leave_out(row, status_message());
    status_clear();
}

static enum status describe(struct fields *fields, struct scale_row *row) {
    if (!has_precision(fields, row) || !has_dimensions(fields, row)) return STATUS_OK;
    TRY(find_cluster(fields, row));
    if (!row->described) return STATUS_OK;
    row->job.model = transformer_of(fields);
    row->described = find_layout(fields, row) && find_system(fields, row);
    if (row->described) check_job(row);
    if (!row->described) return STATUS_OK;
    fit_recomputation(fields, row);
    row->step_s = published_step_s(fields, row);
    row->peak_bytes = published_bytes(fields);
    return STATUS_OK;
}

static enum status read_row(const char *name, size_t index, const json_t *object, struct scale_row *out) {
    char where[512];
    struct fields fields;
    snprintf(where, sizeof where, "%s: row %zu", name, index);
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: must be an object", where);
    TRY(json_require(where, object, "id"));
    if (json_is_integer(json_object_get(object, "id")))
        snprintf(where, sizeof where, "%s: row %zu (id %lld)", name, index,
                 (long long)json_integer_value(json_object_get(object, "id")));
    TRY(read_fields(where, object, &fields));
    *out = (struct scale_row){.id = fields.id, .source = fields.src};
    enum status status = describe(&fields, out);
    return status == STATUS_BAD_INPUT ? status_prefix(status, "%s", where) : status;
}

static enum status refuse_twice(const char *name, const struct scale_rows *rows, int64_t id) {
    for (size_t i = 0; i < rows->list.count; i++)
        if (rows->list.items[i].id == id)
            return status_set(STATUS_BAD_INPUT, "%s: row %zu: id: %lld is that of row %zu too", name, rows->list.count,
                              (long long)id, i);
    return STATUS_OK;
}

static bool share_configuration(const struct scale_row *a, const struct scale_row *b) {
    const struct layout *one = &a->job.layout, *other = &b->job.layout;
    return a->described && b->described && strcmp(a->source, b->source) == 0 &&
           memcmp(&a->job.model, &b->job.model, sizeof a->job.model) == 0 && one->tensor == other->tensor &&
           one->pipeline == other->pipeline && one->micro_batch == other->micro_batch;
}

/* A table over numbers of devices is made in one configuration. So recomputation that its rows leave open is what all
 * of them fit with: the most that one of them needs. */
static void join_recomputation(struct scale_rows *rows) {
    for (size_t i = 0; i < rows->list.count; i++) {
        struct scale_row *row = &rows->list.items[i];
        for (size_t j = 0; j < rows->list.count && row->picks_recomputation; j++) {
            const struct scale_row *other = &rows->list.items[j];
            if (!other->picks_recomputation || !share_configuration(row, other)) continue;
            if (other->job.layout.recomputation > row->job.layout.recomputation)
                row->job.layout.recomputation = other->job.layout.recomputation;
        }
    }
}

enum status scale_rows_parse(const char *name, json_t *document, struct scale_rows *out) {
    struct scale_rows rows = {0};
    enum status status = STATUS_OK;
    if (!json_is_array(document)) return status_set(STATUS_BAD_INPUT, "%s: must be a list of rows", name);
    for (size_t i = 0; i < json_array_size(document) && status == STATUS_OK; i++) {
        struct scale_row row;
        status = read_row(name, i, json_array_get(document, i), &row);
        if (status == STATUS_OK) status = refuse_twice(name, &rows, row.id);
        if (status == STATUS_OK) status = vec_push(&rows.list, row);
    }
    if (status != STATUS_OK) {
        vec_free(&rows.list);
        return status;
    }
    join_recomputation(&rows);
    rows.document = document;
    *out = rows;
    return STATUS_OK;
}

static enum status load(const char *path, json_t **out) {
    json_error_t error;
    *out = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (*out) return STATUS_OK;
    if (error.line < 0) return status_set(STATUS_BAD_INPUT, "%s: cannot be read", path);
    return status_set(STATUS_BAD_INPUT, "%s: line %d, column %d: %s", path, error.line, error.column, error.text);
}

enum status scale_rows_read(const char *path, struct scale_rows *out) {
    json_t *document;
    TRY(load(path, &document));
    enum status status = scale_rows_parse(path, document, out);
    if (status != STATUS_OK) json_decref(document);
    return status;
}

void scale_rows_free(struct scale_rows *rows) {
    json_decref(rows->document);
    vec_free(&rows->list);
    *rows = (struct scale_rows){0};
}

int64_t layout_devices(const struct layout *layout) {
    return layout->tensor * layout->pipeline * layout->context * layout->data;
}
