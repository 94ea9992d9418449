/* What the run.json of an evaluated run says of preferences, so that nobody types it again. */
#ifndef BALLAST_TRAIN_EVAL_ORIGIN_H
#define BALLAST_TRAIN_EVAL_ORIGIN_H

#include "session/checkpoint/run_folder.h"
#include "train/evaluate.h"

/* What was given, with what the run adds. Zero-initialise; eval_origin_free. */
struct eval_origin {
    struct plan_options plan;
    struct eval_options eval;
    struct run_settings settings; /* owns the added texts */
    bool has_settings;
};
/* Where `folder` is a run on preferences, and all data are such or dpo was asked for: the loss, its settings and the
 * model that training began with, each where it was not given. A plan file decides the settings itself. */
enum status eval_origin_find(const char *folder, const struct plan_options *plan, const struct eval_options *eval,
                             struct eval_origin *out);
void eval_origin_free(struct eval_origin *origin);

#endif
