/* Memory for oneDNN's small working structures, so that a training step allocates nothing.
 *
 * dnnl_primitive_execute makes a map of its arguments and some wrappers on every call (6 to 8 blocks of at most 104
 * bytes in release 2.6) with C++'s operator new, and frees them before it returns. operator new may be replaced by a
 * program (ISO C++ [replacement.functions]); this file's takes blocks from a fixed pool between enter and leave on the
 * thread that called them, and passes all other calls on to the C++ library. */
#ifndef BALLAST_BACKEND_CPU_ONEDNN_MEMORY_H
#define BALLAST_BACKEND_CPU_ONEDNN_MEMORY_H

void onednn_memory_enter(void);
void onednn_memory_leave(void);

#endif
