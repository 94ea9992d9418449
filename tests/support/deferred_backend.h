/* A backend that executes nothing immediately, like a GPU: the CPU's kernels behind queues. One thread, the device,
 * takes items from the heads of the streams, in a random order with a seed and as late as allowed. It respects only the
 * order of each stream and of events. So if a program's runner relies on luck, results are wrong on any machine.
 *
 * Captured calls are recorded with their arguments and executed only at each launch. A step's values are read from
 * the device's memory when the call executes. During a capture, all calls but kernels, zeroing and copies fail, and
 * so does the capture. Host code can neither read nor write the device tier's addresses: the device maps them to
 * other memory. */
#pragma once

#include "backend/backend.h"

/* Starts the device. Odd seeds: it works only while somebody waits for it; even ones: whenever there is work. */
const struct backend *deferred_begin(uint64_t seed);
/* The same with other kernels than the CPU's, which are to work in the memory of the process all the same. */
const struct backend *deferred_begin_with(uint64_t seed,
                                          enum status (*kernel_create)(const struct node *node, struct kernel **out));
/* Sums by other functions than the CPU's, which work in the memory of the process and on no stream. */
struct deferred_sums {
    struct backend_peers peers;
    void (*add)(void *to, const void *from, int64_t count, bool round_bf16, void *stream);
};
void deferred_use_sums(const struct deferred_sums *sums);
/* For libraries that work on streams: the device calls the function in the stream's order, and where what an address
 * stands for is. */
void deferred_call(void *stream, void (*function)(void *argument), void *argument);
void *deferred_behind(const void *address);
/* Which of several such devices it says it is. */
void deferred_choose(int number);
/* Ends it; everything of the backend's must have been given back. */
void deferred_end(void);

/* The device's work fails when it has done so many more items, and stays failed until deferred_end. */
void deferred_fail_after(int64_t items);
/* So many more kernels are taken, and the one after them is refused when it is asked for; those that come later are
 * taken again. */
void deferred_refuse_after(int64_t kernels);
/* From now on device arenas may take so many bytes once every kernel was called; 0, as at the beginning: any. */
void deferred_leave_bytes(int64_t bytes);
/* Captures fail from now on while there are so many graphs: every other one at its beginning, the others at their end.
 */
void deferred_limit_graphs(int64_t max);
/* Graphs launched since deferred_begin. */
int64_t deferred_launches(void);
/* Kernels that were asked for together with others since deferred_begin. */
int64_t deferred_batched(void);
/* Items done since deferred_begin: kernels, zeros, copies, records and waits. */
int64_t deferred_items(void);
