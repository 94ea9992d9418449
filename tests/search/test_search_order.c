/* The order in which the search compiles: with nine programs it finds steps nearly as fast as the best known. It
 * compiles in the order of expected time: the lower bound plus a fraction of the time that the bound assumes is
 * overlapped. Half of the programs are for policies near the best so far, also with smaller chunks
 * (search/proposals.h). Without these the mean gap here is 1.25. */
#include "support/search_rows.h"
#include "support/unit.h"

enum { COMPILED = 9, COMPILED_LONG = 300 };
static const double MEAN_MAX = 1.17;

/* The fastest steps that searches of 300 programs found, in several orders; 0: nothing fits. Costs are made up, so they
 * are the same everywhere. A change of graphs, compiler or simulator changes them: take what the long test prints. */
static const struct model {
    struct step_graph_size size;
    double min_s[SEARCH_ROWS];
} models[] = {
    {{"4 x 768, 2 micro-batches of 1024", 4, 768, 12, 8192, 1024, 2},
     {2.52458, 2.66625, 2.84559, 0, 3.38245, 4.67558, 5.60668, 0, 0.00503792, 0.0681941, 0.180167, 0.182255}},
    {{"6 x 768, 2 micro-batches of 1024", 6, 768, 12, 8192, 1024, 2},
     {3.58515, 3.62162, 3.86442, 0, 4.55648, 5.64134, 7.3651, 0, 0.00660918, 0.0892161, 0.2026, 0.24891}},
    {{"8 x 1280, 1 micro-batch of 512", 8, 1280, 20, 50257, 512, 1},
     {4.26292, 5.06196, 0, 0, 9.77239, 15.6611, 0, 0, 0.0292116, 0.734419, 1.49698, 0}},
};
enum { MODELS = sizeof models / sizeof *models };

/* The sum of the gaps of a model's rows. */
static double add_gaps(const struct model *model, int compiled, int *count) {
    struct search_row rows[SEARCH_ROWS];
    double sum = 0;
    assert_int_equal(search_rows_find(&model->size, (struct search_effort){.max_compiled = compiled}, rows), STATUS_OK);
    for (int i = 0; i < SEARCH_ROWS; i++) {
        double min_s = model->min_s[i], gap = min_s > 0 ? rows[i].step_s / min_s : 1;
        print_message("%s, %s, %.2f: %.6g s, %.3f of the least\n", model->size.name, rows[i].machine, rows[i].part,
                      rows[i].step_s, gap);
        assert_int_equal(rows[i].step_s > 0, min_s > 0);
        assert_true(gap > 1 - 1e-3); /* else there is a faster one to be held to */
        *count += min_s > 0;
        sum += min_s > 0 ? gap : 0;
    }
    return sum;
}

static double mean_gap(int compiled) {
    double sum = 0;
    int count = 0;
    for (int m = 0; m < MODELS; m++)
        sum += add_gaps(&models[m], compiled, &count);
    print_message("%d programs: %.4f of the least in the mean of %d rows\n", compiled, sum / count, count);
    return sum / count;
}

static void few_programs(void **state) {
    (void)state;
    assert_true(mean_gap(COMPILED) < MEAN_MAX);
}

static void many_programs(void **state) {
    (void)state;
    if (unit_sweep(0, 1)) assert_true(mean_gap(COMPILED_LONG) < 1.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_programs),
        cmocka_unit_test(many_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
