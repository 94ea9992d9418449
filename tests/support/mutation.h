/* Damages a file with one random change of its JSON or of its bytes. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum file_form {
    FORM_JSON,
    FORM_LINES,   /* JSON, a value a line */
    FORM_WEIGHTS, /* safetensors: the length of a JSON header, the header, data */
    FORM_BYTES
};

struct bytes {
    char *data; /* malloc, with a NUL behind it */
    size_t count;
};
struct bytes bytes_read(const char *path);

struct mutation {
    struct bytes bytes;
    char text[256]; /* what was changed, for messages */
};
/* A changed copy of the bytes, the same for the same seed. Half of the changes of a file with JSON are to a node of it
 * (removed, renamed, replaced by another or by a value that programs get wrong), the others are to bytes. The
 * caller frees `bytes.data`. */
struct mutation mutation_make(enum file_form form, struct bytes original, uint64_t seed);

/* Paths of the values that differ between two files, as an array of strings; json_decref. A path is the keys that lead
 * to the value with dots between them, "[]" for an element of a list; lines have one set of paths. Besides these:
 * "<text>" where a side is no JSON, "<lines>" where there are not as many lines, "<data>" for the bytes of weights or
 * of FORM_BYTES, and "<order>" where keys have another order or text another form, and nothing else differs. */
json_t *mutation_paths(enum file_form form, struct bytes original, struct bytes changed);
