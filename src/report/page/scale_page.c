#include "report/page/scale_page.h"

#include <string.h>

#include "base/file.h"
#include "base/folder.h"

/* "<!doctype html>" is how `ballast` knows its pages when it replaces one. */
static const char HEAD[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<style>body{max-width:1180px;margin:0 auto;padding:20px;font:16px/1.5 system-ui,sans-serif;color:#17202b;"
    "background:#f6f7f9}h1{font-size:1.6rem}h2{font-size:1.2rem}.charts{display:grid;gap:16px;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr))}figure{margin:0;padding:12px;background:#fff;"
    "border:1px solid #d9dee5;border-radius:10px}figure svg{width:100%;height:auto}figcaption{font-size:.85rem;"
    "color:#55606e}.wide{overflow-x:auto}table{border-collapse:collapse;background:#fff;font-size:.85rem;"
    "font-variant-numeric:tabular-nums}td,th{padding:4px 10px;border:1px solid #d9dee5;text-align:right;"
    "white-space:nowrap}</style>\n<title>";

static enum status append(struct text_buffer *out, const char *text) { return text_append(out, text, strlen(text)); }

static enum status draw(const struct scale_picture *picture, struct text_buffer *out) {
    TRY(append(out, "<div class=\"charts\">\n"));
    for (enum scale_plot plot = 0; plot < SCALE_PLOT_COUNT; plot++) {
        if (!scale_plot_has(picture, plot)) continue;
        TRY(svg_print(out, "<figure id=\"%s\">\n", scale_plot_name(plot)));
        TRY(scale_plot_draw(picture, plot, out));
        TRY(svg_print(out, "<figcaption>%s</figcaption></figure>\n", scale_plot_caption(plot)));
    }
    return append(out, "</div>\n");
}

static enum status tabulate(const char *title, const struct choice *choices, size_t choice_count,
                            const struct scale_column *columns, size_t count, const void *context,
                            struct text_buffer *out) {
    if (choice_count == 0) return STATUS_OK;
    TRY(svg_print(out, "<h2>%s</h2>\n<div class=\"wide\"><table><tr>", title));
    for (size_t i = 0; i < count; i++)
        TRY(svg_print(out, "<th>%s</th>", columns[i].heading));
    for (size_t row = 0; row < choice_count; row++) {
        TRY(append(out, "</tr>\n<tr>"));
        for (size_t i = 0; i < count; i++) {
            TRY(append(out, "<td>"));
            TRY(columns[i].cell(context, &choices[row], out));
            TRY(append(out, "</td>"));
        }
    }
    return append(out, "</tr></table></div>\n");
}

enum status scale_page_make(const struct scale_picture *picture, const struct scale_column *columns, size_t count,
                            const void *context, struct text_buffer *out) {
    TRY(append(out, HEAD));
    TRY(svg_text(out, picture->name));
    TRY(append(out, "</title></head><body>\n<h1>"));
    TRY(svg_text(out, picture->name));
    TRY(append(out, "</h1>\n<p>All of it is simulated; nothing was run.</p>\n"));
    TRY(draw(picture, out));
    TRY(tabulate("Layouts of which none is both faster and smaller", picture->pareto_front, picture->pareto_front_count,
                 columns, count, context, out));
    TRY(tabulate("The fastest by number of devices", picture->curve, picture->curve_count, columns, count, context,
                 out));
    return append(out, "</body></html>\n");
}

static enum status write_plot(const struct scale_picture *picture, const char *folder, enum scale_plot plot) {
    struct text_buffer text = {0};
    char *name = mem_format("%s.svg", scale_plot_name(plot)), *path = name ? path_join(folder, name) : NULL;
    enum status status = path ? scale_plot_draw(picture, plot, &text) : STATUS_FAILED;
    if (status == STATUS_OK) status = file_replace(path, text.items, text.count);
    vec_free(&text);
    mem_free(path);
    mem_free(name);
    return status;
}

enum status scale_plots_write(const struct scale_picture *picture, const char *folder) {
    TRY(folder_create(folder));
    for (enum scale_plot plot = 0; plot < SCALE_PLOT_COUNT; plot++)
        if (scale_plot_has(picture, plot)) TRY(write_plot(picture, folder, plot));
    return STATUS_OK;
}
