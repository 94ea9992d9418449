/* Libraries of NVIDIA's that are opened when a function of theirs is first called. Linking them would cost every start
 * relocations (cuBLASLt: 0.2 s and 94 MiB, more than a process in a small cgroup may have), even without a GPU, and
 * nothing would start where one of them is missing.
 *
 * library.c has cuBLASLt's functions and cudnn_graph.c cuDNN's, under their own names. */
#pragma once

#include <pthread.h>

#include "base/base.h"

struct opened_library {
    const char *name, *folder; /* looked for where the system's loader looks, then in the directory */
    pthread_mutex_t lock;
    bool tried;
    void *handle; /* NULL: not open, or not to be had */
};
#define OPENED_LIBRARY(name, folder)                                                                                   \
    { name, folder, PTHREAD_MUTEX_INITIALIZER, false, NULL }

/* The address of a function; NULL where the library is not to be had or lacks it. Any thread may call it. */
void *opened_library_find(struct opened_library *library, const char *function);

/* Defines a function that calls the library's one of that name; `otherwise`: what it returns where there is none.
 * POSIX has functions' addresses in objects' pointers. */
#define OPENED_FUNCTION(library, type, name, parameters, arguments, otherwise)                                         \
    type name parameters {                                                                                             \
        static _Atomic(void *) found;                                                                                  \
        void *address = found;                                                                                         \
        if (!address) found = address = opened_library_find(library, #name);                                           \
        type(*function) parameters;                                                                                    \
        *(void **)&function = address;                                                                                 \
        return function ? function arguments : (otherwise);                                                            \
    }

#define OPENED_TEXT_OF(number) #number
#define OPENED_TEXT(number) OPENED_TEXT_OF(number)
