/* Hashes of things whose bytes lie in runs on several ranks, such as a tensor's: a hash's state goes from rank to rank
 * along the runs, so it is that of all bytes in their order. Many hashes are on their way at a time. */
#ifndef BALLAST_SESSION_HASH_RELAY_H
#define BALLAST_SESSION_HASH_RELAY_H

#include "base/byte_store.h"
#include "comm/comm.h"

/* Bytes [begin, end) of a thing that a rank has. */
struct hash_run {
    int64_t begin, end;
    const void *key; /* in the rank's store */
};

struct hash_relay {
    struct comm *comm;
    struct comm_group group;     /* the ranks that have all together, each byte one of them */
    const struct hash_run *mine; /* by number; may be empty */
    size_t count;                /* the same on all ranks of `comm` */
    struct byte_store store;     /* of this rank's runs */
};
/* Collective over all ranks. hashes[i] becomes the XXH3 of thing i, on all ranks. FAILED without memory, or where this
 * rank's bytes cannot be read, which others do not learn: they have a wrong hash then. */
enum status hash_relay_run(const struct hash_relay *relay, uint64_t *hashes);

#endif
