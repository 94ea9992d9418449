/* Who makes a cache: of several processes that need the ids of one text, such as the ranks of a node, the one that has
 * the lock on PATH.lock makes them, and tells there how far it is; the others read its unfinished cache. The lock is
 * the kernel's: it goes with its process, however that ends. */
#ifndef BALLAST_DATA_TOKEN_LOCK_H
#define BALLAST_DATA_TOKEN_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_lock_state {
    TOKEN_LOCK_MINE,
    TOKEN_LOCK_OTHERS, /* another process has it, or this one for another use of the text */
    TOKEN_LOCK_NONE    /* there are no locks here */
};

/* What the maker has written so far. No padding, so that it hashes as bytes. */
struct token_making {
    char magic[8];
    uint64_t boot;        /* of the system that the maker runs on: on another, unfinished files may not be readable */
    int64_t pid;          /* of the maker */
    uint64_t key;         /* of what the ids are made from (glance in token_cache.c) */
    int64_t count;        /* ids that can be read */
    uint64_t text_bytes;  /* that they are made of */
    char file[4096 - 56]; /* where they are */
    uint64_t self;        /* hash of the fields before */
};

struct token_lock {
    int descriptor; /* while `open` */
    bool open, mine;
    char *path;
};

/* Takes the lock of the cache at `path`, or opens it to watch who has it. Free with token_lock_close in any case. */
enum token_lock_state token_lock_open(const char *path, struct token_lock *out);
/* Takes the lock that another process has let go of meanwhile. */
enum token_lock_state token_lock_retry(struct token_lock *lock);
/* The maker tells. A failure is of no consequence: the others wait and then make their own. */
void token_lock_write(const struct token_lock *lock, uint64_t key, int64_t count, uint64_t text_bytes,
                      const char *file);
/* What the maker told last; false where that cannot be read. */
bool token_lock_read(const struct token_lock *lock, struct token_making *out);
/* Whether another process on this system tells. */
bool token_making_is_near(const struct token_making *making);
/* Lets go. One that is not open is left alone. */
void token_lock_close(struct token_lock *lock);

#endif
