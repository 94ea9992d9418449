#include "model/foreign_weights.h"

#include <stdbool.h>
#include <string.h>

#include "base/file.h"

static const char convert_hint[] =
    "save it as safetensors, with what it was saved with; for transformers: "
    "AutoModelForCausalLM.from_pretrained(directory).save_pretrained(new_folder), of peft "
    "AutoPeftModelForCausalLM";

static const struct format {
    const char *what;
    const char *suffixes;  /* of names, separated by blanks */
    const char *begins[2]; /* first bytes of files; NULL: others cannot be told apart by them */
    const char *hint;
} formats[] = {
    {"is GGUF, llama.cpp's format, mostly of quantised weights",
     ".gguf .ggml",
     {"GGUF", "lmgg"},
     "training needs what it was made from: the model's directory with config.json and *.safetensors"},
    {"is a pickle of PyTorch, which is a program and not only data; weights are read from safetensors",
     ".bin .pt .pth .ckpt .pkl",
     {"PK\3\4", "\x80\2\x8a\n"}, /* a zip archive; PyTorch's older form, which begins with its magic number */
     convert_hint},
    {"is of TensorFlow or Flax; weights are read from safetensors", ".h5 .msgpack", {"\x89HDF", NULL}, convert_hint},
    {"is ONNX; weights are read from safetensors", ".onnx", {NULL, NULL}, convert_hint},
    {"is a pointer of Git LFS, not the file itself",
     "",
     {"version https://git-lfs", NULL},
     "get the files themselves: git lfs pull, in their directory"},
};
enum { FORMATS = sizeof formats / sizeof *formats, FIRST_BYTES = 64 };

static bool ends_with_any(const char *name, const char *suffixes) {
    size_t length = strlen(name);
    while (*suffixes) {
        size_t here = strcspn(suffixes, " ");
        if (length > here && strncmp(name + length - here, suffixes, here) == 0) return true;
        suffixes += here + strspn(suffixes + here, " ");
    }
    return false;
}

static const struct format *find_by_name(const char *name) {
    for (int i = 0; i < FORMATS; i++)
        if (ends_with_any(name, formats[i].suffixes)) return &formats[i];
    return NULL;
}

static const struct format *find_by_content(const unsigned char *data, size_t bytes) {
    for (int i = 0; i < FORMATS; i++)
        for (int b = 0; b < 2; b++) {
            const char *begin = formats[i].begins[b];
            if (begin && bytes >= strlen(begin) && memcmp(data, begin, strlen(begin)) == 0) return &formats[i];
        }
    return NULL;
}

static enum status refuse(const char *path, const struct format *format) {
    if (!format) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "%s: %s", path, format->what), "%s", format->hint);
}

enum status foreign_weights_refuse_content(const char *path, const struct file_input *file) {
    unsigned char first[FIRST_BYTES];
    size_t bytes = file->bytes < sizeof first ? file->bytes : sizeof first;
    TRY(file_input_read(file, 0, bytes, first));
    return refuse(path, find_by_content(first, bytes));
}

enum status foreign_weights_refuse_file(const char *path) {
    struct file_input file;
    TRY(file_input_open(path, &file));
    enum status status = foreign_weights_refuse_content(path, &file);
    file_input_close(&file);
    return status;
}

enum status foreign_weights_refuse_name(const char *path) { return refuse(path, find_by_name(path)); }

enum status foreign_weights_refuse_folder(const char *folder) {
    struct names names = {0};
    TRY(folder_list(folder, &names));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        const struct format *format = find_by_name(names.items[i]);
        char *path = format ? path_join(folder, names.items[i]) : NULL;
        if (format) status = path ? refuse(path, format) : STATUS_FAILED;
        mem_free(path);
    }
    names_free(&names);
    return status;
}
