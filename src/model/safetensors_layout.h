/* Where everything lies in a safetensors file that is to be written, and its items' bytes. Private to
 * safetensors_layout, safetensors_write and safetensors_runs. */
#ifndef BALLAST_MODEL_SAFETENSORS_LAYOUT_H
#define BALLAST_MODEL_SAFETENSORS_LAYOUT_H

#include "model/safetensors.h"

struct layout {
    const struct safetensors_item **sorted; /* in the order of their data, which follow each other */
    size_t count;
    char *head; /* the length, the JSON, and spaces up to a multiple of 8 */
    uint64_t head_bytes, bytes;
};
/* The items are borrowed. FAILED without memory. */
enum status layout_make(const struct safetensors_item *items, size_t count, struct layout *out);
void layout_free(struct layout *layout);

/* All of an item's. */
int64_t item_bytes(const struct safetensors_item *item);
/* Bytes [offset, offset + bytes) of an item that has no data in memory. */
enum status item_read(const struct safetensors_item *item, int64_t offset, int64_t bytes, void *out);
/* FAILED, naming the item, where bytes of it, from `offset` on, hold a value that is not finite. What is carried is not
 * ours to judge. */
enum status item_check_finite(const struct safetensors_item *item, const char *data, int64_t offset, size_t bytes);

#endif
