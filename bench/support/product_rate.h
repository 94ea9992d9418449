/* Measures oneDNN's rate on the GEMMs of a training step, each in its best layout: the rate of a step that consists
 * only of GEMMs, with nothing to copy, pack or wait for. */
#pragma once

#include <stdio.h>

#include "ir/graph.h"
#include "runtime/store/arena.h"

struct product_rate;

/* Finds the distinct products of the graph (forward, dx, dweight; the head's over all tokens of a micro-batch), and for
 * each the fastest of oneDNN's primitives over layouts of its operands: rows, columns, or oneDNN's choice, and the same
 * for the transposed product. Factors are in `dtype`, results as the graph has them, but fp32 where factors are.
 * Operands share an arena of their own; some seconds. With the present number of threads. */
enum status product_rate_open(const struct graph *graph, enum dtype dtype, struct product_rate **out);
void product_rate_close(struct product_rate *rate);
/* FLOP/s over all GEMMs of a micro-batch. Measures each distinct GEMM (median of a few runs) and counts it as often as
 * it occurs in the graph. */
enum status product_rate_measure(struct product_rate *rate, double *flops_per_s);
/* One line for each product: its sizes, layouts, the primitive's name and its rate in the last measurement. */
void product_rate_print(const struct product_rate *rate, FILE *out);
