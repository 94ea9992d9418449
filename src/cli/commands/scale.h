/* `ballast plan MODEL --cluster NAME --devices N`: layouts for many devices, simulated (search/scale/choose.h), printed
 * and drawn as a page (--page) and as files (--svg). */
#pragma once

#include "cli/options.h"

/* Whether the options ask for it: --devices or --target-days was given. */
bool scale_plan_is_requested(const struct options *options);
/* Prints the Pareto front of layouts and the curve over numbers of devices, or with --json one document. BAD_INPUT
 * naming the option; NO_FIT where no layout fits. */
enum status scale_plan_run(const struct options *options);
