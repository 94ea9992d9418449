/* Collectives of the partition of states: which ranks take part (AMSP, arXiv 2311.00257). All bytes are of one
 * rank's share under tensor parallelism. */
#pragma once

#include "machine/collective_cost.h"
#include "search/scale/training.h"

/* Data-parallel ranks among whom experts are spread: neighbours, which fill a node first. */
struct rank_group expert_group(const struct training *job);

struct collective_load {
    double seconds;
    double link_part; /* of the rate of a node's links, what it keeps busy: 1 in a node, less across slower adapters */
};

/* Of `parameters` weights for a forward: gathered by those who hold shards. `piece_s`: seconds of a call for a rank's
 * piece, in systems that make such calls. 0 where they are not cut. */
struct collective_load partition_gather(const struct training *job, const struct fabric *fabric, double parameters,
                                        double piece_s);
/* For a backward: the same, but from the second copy where there is one. */
struct collective_load partition_gather_again(const struct training *job, const struct fabric *fabric,
                                              double parameters, double piece_s);
/* Their gradients, scattered within that group after a backward. 0 where parameters are not cut. */
struct collective_load partition_scatter(const struct training *job, const struct fabric *fabric, double parameters,
                                         double piece_s);
/* Their gradients' sum over those who hold the same shard, once a step. 0 where nobody does. `experts`: of expert
 * weights, which only one rank of an expert group has. */
struct collective_load partition_reduce(const struct training *job, const struct fabric *fabric, double parameters,
                                        bool experts);
/* New parameters after the update, to those who did not compute them. `broadcast_s`: seconds of a broadcast next to its
 * bytes. 0 where each updates what it holds. */
struct collective_load partition_update(const struct training *job, const struct fabric *fabric, double parameters,
                                        bool experts, double broadcast_s);
