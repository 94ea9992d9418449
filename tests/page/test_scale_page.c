/* Drawings and the page of plans for many devices are well-formed, and show all required parts for any plan. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "machine/cluster.h"
#include "report/page/scale_page.h"
#include "search/scale/training.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)

/* A GPT of 16 layers on two stages of 8 A100s, twice: with more micro-batches a step it is slower and no smaller. */
static struct choice choices[2];

static struct scale_picture picture_of(int64_t pipeline) {
    struct calibration calibration = calibration_default();
    struct scale_picture picture = {.name = "a <model> & \"another\"", .step_tokens = 65536, .capacity_bytes = 80e9};
    picture.job = (struct training){
        .model = {.hidden = 2048, .layers = 64, .heads = 16, .kv_heads = 16, .ffn = 8192, .vocab = 32000},
        .layout = {.tensor = 1,
                   .pipeline = pipeline,
                   .context = 1,
                   .data = 8,
                   .virtual_stages = 1,
                   .partition = {1, 1, 8},
                   .micro_batch = 1,
                   .micro_batches = 4 * pipeline,
                   .sequence_length = 2048},
        .system = training_system_ballast,
    };
    assert_int_equal(cluster_open("a100-80x8", &picture.job.cluster), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        choices[i] = (struct choice){.devices = 8 * pipeline * (i + 1), .layout = picture.job.layout};
        assert_int_equal(forecast_step(&picture.job, &calibration, &choices[i].forecast), STATUS_OK);
    }
    choices[1].forecast.step_s /= 1.5;
    picture.pareto_front = picture.curve = choices;
    picture.pareto_front_count = picture.curve_count = 2;
    picture.chosen = &choices[1];
    return picture;
}

static char *draw(const struct scale_picture *picture, enum scale_plot plot) {
    struct text_buffer text = {0};
    assert_int_equal(scale_plot_draw(picture, plot, &text), STATUS_OK);
    assert_int_equal(text_append(&text, "", 1), STATUS_OK);
    return text.items;
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

static void every_choice_has_its_mark_on_pareto_front_and_curve(void **state) {
    (void)state;
    struct scale_picture picture = picture_of(2);
    for (enum scale_plot plot = SCALE_PLOT_PARETO_FRONT; plot <= SCALE_PLOT_CURVE; plot++) {
        char *text = draw(&picture, plot);
        assert_int_equal(count_of(text, "<circle"), 2);
        assert_int_equal(strncmp(text, "<svg xmlns=", 11), 0);
        assert_null(strstr(text, "nan"));
        assert_null(strstr(text, "inf"));
        mem_free(text);
    }
}

/* Bars of a stage end where the simulation does; every kind that the step has is drawn. */
static void the_timeline_has_the_kinds_of_the_step(void **state) {
    (void)state;
    struct scale_picture picture = picture_of(2);
    char *text = draw(&picture, SCALE_PLOT_TIMELINE);
    assert_non_null(strstr(text, ">stage 1<"));
    assert_non_null(strstr(text, ">stage 2<"));
    /* The key has one of each; forward, backward, update and what is reduced and handed out are drawn besides. */
    static const char *const drawn[] = {"#3b82c4", "#e8963a", "#4f9d55", "#d8745a", "#cf7fc0"};
    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
        assert_true(count_of(text, drawn[i]) > 1);
    assert_int_equal(count_of(text, "#8f79d6"), 1); /* no gathers: parameters are not cut */
    mem_free(text);
}

static void many_stages_are_drawn_in_part(void **state) {
    (void)state;
    struct scale_picture picture = picture_of(64);
    for (enum scale_plot plot = SCALE_PLOT_TIMELINE; plot <= SCALE_PLOT_MEMORY; plot++) {
        char *text = draw(&picture, plot);
        assert_int_equal(count_of(text, ">stage "), 32);
        assert_non_null(strstr(text, ">stage 1<"));
        assert_non_null(strstr(text, ">stage 64<"));
        mem_free(text);
    }
}

static enum status devices_cell(const void *context, const struct choice *choice, struct text_buffer *out) {
    return text_print(out, "%s%lld", (const char *)context, (long long)choice->devices);
}

static enum status make_page(void *picture) {
    static const struct scale_column columns[] = {{"devices", devices_cell}};
    struct text_buffer text = {0};
    enum status status = scale_page_make(picture, columns, 1, "n", &text);
    if (status == STATUS_OK) status = text_append(&text, "", 1);
    if (status == STATUS_OK) {
        assert_int_equal(count_of(text.items, "<svg"), SCALE_PLOT_COUNT);
        assert_int_equal(count_of(text.items, "<td>n32</td>"), 2);
        assert_non_null(strstr(text.items, "a &lt;model&gt; &amp; &quot;another&quot;"));
        assert_null(strstr(text.items, "<model>"));
        assert_null(strstr(text.items, "http://www.w3.org/2000/svg\"><script"));
    }
    vec_free(&text);
    return status;
}

static void the_page_has_all_drawings_and_escapes_names(void **state) {
    (void)state;
    struct scale_picture picture = picture_of(2);
    assert_int_equal(make_page(&picture), STATUS_OK);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, make_page, &picture) >= 4);
}

/* A file has what the page has. */
static void files_are_the_drawings_of_the_page(void **state) {
    const char *folder = temp_path(*state, "drawings");
    struct scale_picture picture = picture_of(2);
    assert_int_equal(scale_plots_write(&picture, folder), STATUS_OK);
    for (enum scale_plot plot = 0; plot < SCALE_PLOT_COUNT; plot++) {
        char name[32], *text, *drawn = draw(&picture, plot);
        size_t bytes;
        snprintf(name, sizeof name, "%s.svg", scale_plot_name(plot));
        assert_int_equal(file_read(temp_path(folder, name), 1 << 24, &text, &bytes), STATUS_OK);
        assert_string_equal(text, drawn);
        mem_free(text);
        mem_free(drawn);
    }
    picture.pareto_front_count = 0;
    folder = temp_path(*state, "no front");
    assert_int_equal(scale_plots_write(&picture, folder), STATUS_OK);
    assert_false(file_exists(temp_path(folder, "pareto_front.svg")));
    assert_true(file_exists(temp_path(folder, "curve.svg")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(every_choice_has_its_mark_on_pareto_front_and_curve),
        CASE(the_timeline_has_the_kinds_of_the_step),
        CASE(many_stages_are_drawn_in_part),
        CASE(the_page_has_all_drawings_and_escapes_names),
        CASE(files_are_the_drawings_of_the_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
