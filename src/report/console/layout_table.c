#include "report/console/layout_table.h"

#include <math.h>

static void print_gain(FILE *out, const struct layout_report *report) {
    fprintf(out, "\nlayout: chosen by the solver, %.4g s per micro-batch in its cost model", report->seconds);
    if (!report->megatron.nodes)
        fprintf(out, "; Megatron-LM's layout is not divisible by the ranks\n");
    else if (isnan(report->megatron_s))
        fprintf(out, "; Megatron-LM's layout is not among its strategies\n");
    else
        fprintf(out, ", %.1f%% less than the %.4g s of Megatron-LM's layout\n",
                100 * (1 - report->seconds / report->megatron_s), report->megatron_s);
}

void layout_table_print(FILE *out, const struct layout_report *report) {
    char own[LAYOUT_REPORT_TEXT], other[LAYOUT_REPORT_TEXT];
    print_gain(out, report);
    for (size_t n = 0; n < report->graph->nodes.count; n++) {
        const struct node *node = report->graph->nodes.items[n];
        if (layout_report_differs(report, node))
            fprintf(out, "  %-28s %s; Megatron-LM: %s\n", node->name, layout_report_print(node, &report->chosen, own),
                    layout_report_print(node, &report->megatron, other));
    }
}
