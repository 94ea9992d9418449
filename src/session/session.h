/* To train, evaluate, generate or simulate, open a session and make its plan; to compute, open an engine for it.
 *
 *     struct session session;         a model on a machine; no weight is read
 *     struct session_plan plan;       recipe, policy, compiled programs, the memory they take
 *     struct engine engine;           memory for them: weights, optimizer state, a step
 *
 *     session_open(directory, &options, NULL, &session);
 *     session_plan_make(&session, &request, &plan);         // session_plan.h does both in one call
 *     engine_open(&plan, &engine);
 *     ...
 *     engine_close(&engine), session_plan_free(&plan), session_close(&session);
 *
 * Each borrows the one before it, which must stay where it is for as long. A process may have one session after the
 * other, also with several plans each; at a time one engine computes.
 *
 * Files, in the order to read them: session; train_options, plan_resolve (what is asked for, and the recipe of it);
 * machine (backend, tiers, the share of each rank); programs (what is compiled; the proof that ranks' programs fit
 * together); machine_costs (what operators and tiers cost); plan_request (a complete request: nothing below reads
 * options); session_plan (the plan, or why none fits and what would); evaluate, choose, candidates, choose_policy
 * (bounds, compiles and simulates one candidate; the loop over candidates; what one leaves open; its policy);
 * plan_document (plan.json, and what each part of a plan gains); layout_report (how operators are or could be
 * partitioned); engine, engine_weights, engine_hash (arenas and steps, where a value stopped being finite; weights;
 * their hashes); states (weights on their way to another engine); step_collectives (what ranks tell each other around a
 * step); model_tokenizer (a model's tokenizer). */
#pragma once

#include "model/model.h"
#include "plan/plan.h"
#include "session/machine.h"

struct session {
    struct model *model; /* owned */
    struct machine machine;
    struct comm *comm; /* the ranks that compute together; never NULL */
    bool owns_comm;    /* the options have none: it is of one rank, and opened here */
};

/* Opens the model (where `options` say that an outline is enough, without weights) and the machine (machine_open).
 * BAD_INPUT naming file and field. The caller closes with session_close. With several ranks (options->comm) all of them
 * call it, here and below. */
enum status session_open(const char *model_folder, const struct plan_options *options, const struct recipe *decided,
                         struct session *out);
/* The same with a model that is there, which the session takes over, also on failure. */
enum status session_open_model(struct model *model, const struct plan_options *options, const struct recipe *decided,
                               struct session *out);
void session_close(struct session *session);

static inline int session_ranks(const struct session *session) { return mesh_ranks(&session->comm->mesh); }
/* This rank's place in its own mesh, as the machine's memory has it; in any other the first rank's, on machines like
 * this one whose ranks share memory. */
struct rank_place session_place(const struct session *session, const struct mesh *mesh);

/* Sets which weights a step trains: the model gets the recipe's adapters and frozen weights, and the recipe their
 * canonical spelling. Call it before the session's plans are made; it holds for all of them. BAD_INPUT where the model
 * has no such weights. */
enum status session_set_trained(struct session *session, struct recipe *recipe);
