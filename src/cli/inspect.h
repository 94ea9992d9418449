/* What `ballast inspect` can look at: one function for each kind of thing. Each makes a JSON object with "kind" and
 * what there is to say, which is printed as it is or as text; the caller drops it. */
#ifndef BALLAST_CLI_INSPECT_H
#define BALLAST_CLI_INSPECT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

enum status inspect_model(const char *folder, json_t **out);
enum status inspect_run(const char *folder, json_t **out);
enum status inspect_weights(const char *path, json_t **out);
enum status inspect_tokens(const char *path, json_t **out);
/* A tokenizer, a plan or a cluster, by its keys. */
enum status inspect_json_file(const char *path, json_t **out);
/* A machine of clusters/ by its name, which there is (machine/cluster_preset.h). */
enum status inspect_cluster_preset(const char *name, json_t **out);

/* Compares the files of a checkpoint, of a run's checkpoints and model, or of any directory with a manifest with their
 * checksums and prints what it finds, as one JSON document or as text. BAD_INPUT when something is damaged, or when
 * there are no checksums at all. */
enum status inspect_verify(const char *folder, bool json);

/* Prints an object as indented lines "key  value"; a list of objects as a table. */
void inspect_print(const json_t *object);

#endif
