/* The learning rate of each step, and AdamW's bias corrections. */
#pragma once

#include "session/train_options.h"
#include "train/train_data.h"

struct lr_shape {
    enum lr_schedule schedule;
    double peak;
    int64_t steps; /* of the schedule, S; later steps have its last value */
    int64_t warmup_steps;
    double min_fraction, wsd_decay_fraction;
};

/* Fills in what is left open: the schedule's steps and the warm-up. */
struct lr_shape lr_shape_of(const struct train_options *options);

/* Of step s, counted from 0. In the warm-up, peak x (s + 1) / warmup. After it, with m the minimum fraction and
 * p = (s - warmup) / (S - warmup):
 *     cosine    m + (1 - m) (1 + cos(pi p)) / 2      (Loshchilov and Hutter, arXiv 1608.03983, equation 5)
 *     linear    1 - (1 - m) p
 *     constant  1
 *     wsd       1, and over the last D = round(S x decay fraction) steps 1 - (1 - m) (s - (S - D)) / D
 *               (Hu et al., arXiv 2404.06395, section 4)
 * times the peak. */
double lr_at_step(const struct lr_shape *shape, int64_t step);

/* How long a run is that is given in epochs: passes over its training data. Without weights each row of the data comes
 * once an epoch (data/dataset.h). */

/* Where options->epochs is given, sets options->steps to what they take, rounded up to whole steps; that waits until
 * all training text is tokenized, and is a function of data, batch and epochs alone. Then fixes the warm-up. `done`:
 * steps that were made. BAD_INPUT where sources have weights, so that each has passes of its own length; where the
 * steps are too many, or fewer than are done. */
enum status run_length_settle(struct dataset *dataset, const struct recipe *recipe, int64_t done,
                              struct train_options *options);

/* Passes made after `steps`; 0 where the run's length is not given in epochs. */
double run_length_epoch(const struct dataset *dataset, const struct recipe *recipe, const struct train_options *options,
                        int64_t steps);
