/* Rows of published steps: parsed texts, and named errors. */
#include "base/json.h"
#include "support/scale_rows.h"
#include "support/unit.h"

static const char *const good =
    "[{\"id\": 7, \"src\": \"a table\", \"model\": \"LLaMA-13B\", \"hidden\": 5120, \"layers\": 40, \"heads\": 40,"
    "\"seq\": 4096, \"gpus\": 64, \"gpus_per_node\": 8, \"hw\": \"A800-80GB (NVLink)\","
    "\"inter_node\": \"4x HDR IB per node (800 Gb/s), no SHARP\", \"framework\": \"AMSP/InternEvo\", \"tp\": 1,"
    "\"pp\": 1, \"dp\": 64, \"sharding\": \"P=4x1,G=4x1,OS=8x4 (Table IV)\", \"micro_batch\": 1,"
    "\"global_batch_seqs\": 256, \"act_ckpt\": \"none\", \"precision\": \"bf16\", \"overlap\": \"AG/RS\","
    "\"tokens_per_s_per_gpu\": 1608, \"mem_gb\": 70}]";

static json_t *document(void) {
    json_t *rows = json_loads(good, 0, NULL);
    assert_non_null(rows);
    return rows;
}

static struct scale_rows parse(json_t *rows) {
    struct scale_rows out;
    if (scale_rows_parse("t.json", rows, &out) != STATUS_OK) fail_msg("%s", status_message());
    return out;
}

static void a_row_becomes_a_job(void **state) {
    (void)state;
    struct scale_rows rows = parse(document());
    const struct scale_row *row = &rows.list.items[0];
    assert_true(row->described);
    assert_int_equal(row->job.model.ffn, 13824);
    assert_true(row->job.model.gated);
    assert_int_equal(row->job.layout.partition.parameters, 4);
    assert_int_equal(row->job.layout.partition.optimizer, 32);
    assert_int_equal(row->job.layout.micro_batches, 4);
    assert_true(row->job.cluster.network.node_bytes_per_s == 100e9);
    assert_true(system_has(&row->job.system, OVERLAPS_PARAMETERS) && !system_has(&row->job.system, OVERLAPS_GRADIENTS));
    assert_true(row->step_s == 4.0 * 4096 / 1608);
    assert_true(row->peak_bytes == 70e9);
    scale_rows_free(&rows);
}

/* A row has the data sheet's rate of the adapters; a preset that knows what they were measured to reach keeps that. */
static void a_measured_network_is_kept(void **state) {
    (void)state;
    json_t *rows = document();
    json_object_set_new(json_array_get(rows, 0), "hw", json_string("A100-80GB (Jean Zay)"));
    struct scale_rows out = parse(rows);
    assert_true(out.list.items[0].job.cluster.network.node_bytes_per_s == 135e9 / 8);
    scale_rows_free(&out);
}

static void a_second_copy_of_parameters_is_read(void **state) {
    (void)state;
    static const struct {
        const char *sharding;
        int64_t second;
    } cases[] = {{"P=G=OS over 64", 0},
                 {"P=G=OS=RxN + hpZ secondary P 4x1 (no quantisation)", 4},
                 {"P=G=OS over 64; hpZ secondary P in node", 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *rows = document();
        json_object_set_new(json_array_get(rows, 0), "sharding", json_string(cases[i].sharding));
        struct scale_rows out = parse(rows);
        assert_true(out.list.items[0].described);
        assert_int_equal(out.list.items[0].job.layout.partition.parameters, 64);
        assert_int_equal(out.list.items[0].job.layout.second_parameters, cases[i].second);
        scale_rows_free(&out);
    }
}

static void answers_are_not_needed(void **state) {
    (void)state;
    json_t *rows = document();
    json_object_del(json_array_get(rows, 0), "tokens_per_s_per_gpu");
    json_object_del(json_array_get(rows, 0), "mem_gb");
    struct scale_rows out = parse(rows);
    assert_true(out.list.items[0].described);
    assert_true(out.list.items[0].step_s == 0 && out.list.items[0].peak_bytes == 0);
    scale_rows_free(&out);
}

/* Sets one field of the row, and returns why it is then left out; "" where it is not. */
static void expect_why(const char *field, json_t *value, const char *why) {
    json_t *rows = document();
    if (value)
        json_object_set_new(json_array_get(rows, 0), field, value);
    else
        json_object_del(json_array_get(rows, 0), field);
    struct scale_rows out = parse(rows);
    if (strcmp(out.list.items[0].why, why) != 0) fail_msg("%s: \"%s\"", field, out.list.items[0].why);
    assert_true(out.list.items[0].described == (why[0] == '\0'));
    scale_rows_free(&out);
}

static void what_is_not_described_is_left_out_with_a_reason(void **state) {
    (void)state;
    expect_why("hidden", NULL, "no dimensions");
    expect_why("seq", NULL, "no sequence length");
    expect_why("precision", json_string("fp8"), "fp8 or less");
    expect_why("precision", NULL, "no precision");
    expect_why("hw", json_string("TPU v4"), "no machine that is known");
    expect_why("framework", json_string("another"), "no training system that is known");
    expect_why("sharding", json_string("by magic"), "a partition of states that is not described");
    expect_why("sharding", json_string("P=4x1,G=9223372036854775807x8,OS=8x4"),
               "layout: partition: optimizer states must be cut as finely as gradients, and those as parameters");
    expect_why("tp", json_integer(3), "the layout does not give the number of devices");
    expect_why("micro_batch", json_integer(5000), "the micro-batch is larger than a rank's batch");
    expect_why("micro_batch", NULL, "");
    expect_why("vocab", json_integer(50000), "");
}

/* What a row leaves to a default is the least that fits: 175B over 32 devices does not with all but its attention
 * kept, over 512 it does. */
static json_t *document_of_default(int id, int data) {
    json_t *rows = document();
    json_t *changes = json_pack("{s:i, s:s, s:i, s:i, s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:s}", "id", id, "model",
                                "GPT", "hidden", 12288, "layers", 96, "heads", 96, "hw", "A100-80GB", "framework",
                                "NeMo Megatron", "tp", 4, "pp", 8, "dp", data, "gpus", 32 * data, "sharding",
                                "distributed", "act_ckpt", "none/selective default");
    assert_int_equal(json_object_update(json_array_get(rows, 0), changes), 0);
    json_decref(changes);
    return rows;
}

static void a_default_of_recomputation_is_the_smallest_that_fits(void **state) {
    (void)state;
    for (int large = 0; large < 2; large++) {
        struct scale_rows out = parse(document_of_default(7, large ? 16 : 1));
        assert_int_equal(out.list.items[0].job.layout.recomputation, large ? RECOMPUTE_ATTENTION : RECOMPUTE_FULL);
        scale_rows_free(&out);
    }
}

/* Rows of a table over numbers of devices: what the fewest need, all have. */
static void a_default_is_the_same_for_a_table_over_devices(void **state) {
    (void)state;
    static const char *const tables[] = {"a table", "another table"};
    for (int same = 0; same < 2; same++) {
        json_t *rows = document_of_default(7, 16), *few = document_of_default(8, 1);
        json_object_set_new(json_array_get(few, 0), "src", json_string(tables[!same]));
        json_array_extend(rows, few);
        json_decref(few);
        struct scale_rows out = parse(rows);
        assert_int_equal(out.list.items[0].job.layout.recomputation, same ? RECOMPUTE_FULL : RECOMPUTE_ATTENTION);
        assert_int_equal(out.list.items[1].job.layout.recomputation, RECOMPUTE_FULL);
        scale_rows_free(&out);
    }
}

static void wrong_fields_are_named_with_their_row(void **state) {
    (void)state;
    static const char *const fields[] = {"hidden", "tp", "hw", "sharding", "tokens_per_s_per_gpu", "mem_gb", "id"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *rows = document();
        struct scale_rows out;
        json_object_set_new(json_array_get(rows, 0), fields[i], json_array());
        assert_int_equal(scale_rows_parse("t.json", rows, &out), STATUS_BAD_INPUT);
        if (!strstr(status_message(), "t.json: row 0") || !strstr(status_message(), fields[i]))
            fail_msg("%s: %s", fields[i], status_message());
        json_decref(rows);
    }
}

static void an_id_may_be_there_once(void **state) {
    (void)state;
    struct scale_rows out;
    json_t *rows = document();
    json_array_append(rows, json_array_get(rows, 0));
    assert_int_equal(scale_rows_parse("t.json", rows, &out), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "row 1: id: 7"));
    json_decref(rows);
}

static void networks_are_parsed_from_text(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double bytes_per_s;
    } cases[] = {{"1600 Gb/s RoCE per node", 200e9},
                 {"4x100 Gb/s Omni-Path per node [memory]", 50e9},
                 {"8x200 Gb/s HDR IB per node", 200e9},
                 {"400 Gb/s RDMA per GPU", 400e9},
                 {"400 Gb/s (4x100) per node", 50e9},
                 {"2 Tb/s RoCE (as stated)", 250e9},
                 {"something fast", 100e9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *rows = document();
        json_object_set_new(json_array_get(rows, 0), "inter_node", json_string(cases[i].text));
        struct scale_rows out = parse(rows);
        if (out.list.items[0].job.cluster.network.node_bytes_per_s != cases[i].bytes_per_s)
            fail_msg("%s", cases[i].text);
        scale_rows_free(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_becomes_a_job),
        cmocka_unit_test(a_measured_network_is_kept),
        cmocka_unit_test(a_second_copy_of_parameters_is_read),
        cmocka_unit_test(answers_are_not_needed),
        cmocka_unit_test(what_is_not_described_is_left_out_with_a_reason),
        cmocka_unit_test(a_default_of_recomputation_is_the_smallest_that_fits),
        cmocka_unit_test(a_default_is_the_same_for_a_table_over_devices),
        cmocka_unit_test(wrong_fields_are_named_with_their_row),
        cmocka_unit_test(an_id_may_be_there_once),
        cmocka_unit_test(networks_are_parsed_from_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
