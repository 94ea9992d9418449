/* Machines by name: the files of clusters/, built in, so that a plan can be made for one wherever Ballast runs. */
#ifndef BALLAST_CLUSTER_CLUSTER_PRESET_H
#define BALLAST_CLUSTER_CLUSTER_PRESET_H

#include "cluster/cluster.h"

struct cluster_preset {
    const char *name;          /* "h100x8": of clusters/h100x8.json */
    const unsigned char *text; /* that file, every figure with its source under "sources" */
    size_t bytes;
};
extern const struct cluster_preset cluster_presets[]; /* made from clusters/ by cmake/Clusters.cmake */
extern const int cluster_preset_count;

/* By its name; NULL: there is none. */
const struct cluster_preset *cluster_preset_find(const char *name);
/* The preset's document, which the caller drops. */
enum status cluster_preset_document(const struct cluster_preset *preset, json_t **out);
/* The cluster of a file or, where `name` is that of a preset and no file's, of the preset. BAD_INPUT naming the nearest
 * preset where it is neither. */
enum status cluster_open(const char *name, struct cluster *out);

#endif
