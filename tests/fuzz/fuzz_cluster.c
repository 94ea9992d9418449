/* Any cluster.json is refused or gives a cluster, which is equal after writing and reading again. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "machine/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *object;
    struct cluster cluster, back;
    if (json_parse_object("cluster.json", (const char *)data, bytes, &object) != STATUS_OK) return 0;
    if (cluster_from_json("cluster.json", object, &cluster) == STATUS_OK) {
        json_t *written = cluster_to_json(&cluster);
        if (!written || cluster_from_json("written", written, &back) != STATUS_OK) abort();
        json_t *again = cluster_to_json(&back);
        if (!json_equal(written, again)) abort();
        json_decref(again);
        json_decref(written);
    }
    json_decref(object);
    return 0;
}
