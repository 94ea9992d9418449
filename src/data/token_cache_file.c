#include "data/token_cache_file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/mem.h"

/* The last bytes of a cache. */
struct cache_footer {
    struct token_cache_key key;
    int64_t count, id_limit;
    struct utf8_damage damage; /* of the text */
    uint64_t tokens_hash;
    uint64_t footer_hash; /* of all fields before it */
};

static uint64_t hash_footer(const struct cache_footer *footer) {
    return XXH3_64bits(footer, offsetof(struct cache_footer, footer_hash));
}

char *token_cache_path(const char *folder, const char *text_path) {
    char absolute[PATH_MAX];
    if (!realpath(text_path, absolute)) {
        (void)status_set(STATUS_BAD_INPUT, "%s: cannot be found any more", text_path);
        return NULL;
    }
    const char *slash = strrchr(absolute, '/');
    char *name = mem_format("%s-%016" PRIx64 ".tokens", slash ? slash + 1 : absolute,
                            (uint64_t)XXH3_64bits(absolute, strlen(absolute)));
    char *path = name ? path_join(folder, name) : NULL;
    mem_free(name);
    return path;
}

static bool read_footer(const struct file_map *map, const struct token_cache_key *key, struct token_view *out,
                        struct utf8_damage *damage) {
    struct cache_footer footer;
    if (map->bytes < sizeof footer) return false;
    size_t body = map->bytes - sizeof footer;
    memcpy(&footer, map->data + body, sizeof footer);
    if (footer.footer_hash != hash_footer(&footer) || memcmp(&footer.key, key, sizeof *key) != 0) return false;
    size_t bytes;
    if (footer.count < 0 || !mem_multiply((size_t)footer.count, key->token_bytes, &bytes) || bytes != body)
        return false;
    if (XXH3_64bits(map->data, body) != footer.tokens_hash) return false;
    *damage = footer.damage;
    *out = (struct token_view){
        .tokens = map->data, .token_bytes = (int)key->token_bytes, .count = footer.count, .id_limit = footer.id_limit};
    return true;
}

bool token_cache_file_map(const char *path, const struct token_cache_key *key, struct file_map *map,
                          struct token_view *view, struct utf8_damage *damage) {
    if (!file_exists(path) || file_map_open(path, map) != STATUS_OK) return false;
    if (read_footer(map, key, view, damage)) return true;
    file_map_close(map);
    return false;
}

/* FOLDER/….tokens.PID.NUMBER.new */
static bool is_unfinished(const char *name, pid_t *writer) {
    const char *at = strstr(name, ".tokens.");
    long process;
    int length = 0;
    if (!at || sscanf(at, ".tokens.%ld.%*u.new%n", &process, &length) != 1 || length == 0 || at[length]) return false;
    if (process <= 0 || process > INT_MAX) return false;
    *writer = (pid_t)process;
    return true;
}

/* One that cannot be removed stays. */
static enum status remove_unfinished(const char *folder) {
    struct names names;
    if (folder_list(folder, &names) != STATUS_OK) return STATUS_FAILED;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        pid_t writer;
        if (!is_unfinished(names.items[i], &writer) || kill(writer, 0) == 0 || errno != ESRCH) continue;
        char *path = path_join(folder, names.items[i]);
        if (path)
            unlink(path);
        else
            status = STATUS_FAILED;
        mem_free(path);
    }
    names_free(&names);
    return status;
}

static void close_writer(struct token_cache_writer *writer) {
    XXH3_freeState(writer->hash);
    mem_free(writer->beside);
    *writer = (struct token_cache_writer){.file.descriptor = -1};
}

enum status token_cache_writer_open(const char *folder, const char *path, int token_bytes,
                                    struct token_cache_writer *out) {
    static atomic_uint number; /* one text may be named twice */
    TRY(folder_create(folder));
    TRY(remove_unfinished(folder));
    struct token_cache_writer writer = {.token_bytes = token_bytes, .hash = XXH3_createState()};
    writer.beside = mem_format("%s.%ld.%u.new", path, (long)getpid(), atomic_fetch_add(&number, 1));
    enum status status = writer.beside ? STATUS_OK : STATUS_FAILED;
    if (!writer.hash) status = status_set(STATUS_FAILED, "out of memory for a hash");
    if (status == STATUS_OK) status = file_writer_open(writer.beside, &writer.file);
    if (status != STATUS_OK) {
        close_writer(&writer);
        return status;
    }
    XXH3_64bits_reset(writer.hash);
    *out = writer;
    return STATUS_OK;
}

static void write_bytes(struct token_cache_writer *writer, const void *data, size_t bytes) {
    XXH3_64bits_update(writer->hash, data, bytes);
    file_writer_write(&writer->file, data, bytes);
}

enum status token_cache_writer_write(struct token_cache_writer *writer, const uint32_t *ids, size_t count) {
    writer->count += (int64_t)count;
    if (writer->token_bytes == 4) write_bytes(writer, ids, count * sizeof *ids);
    uint16_t narrow[4096];
    enum { NARROW = sizeof narrow / sizeof narrow[0] };
    for (size_t done = 0; writer->token_bytes == 2 && done < count;) {
        size_t here = count - done < NARROW ? count - done : NARROW;
        for (size_t i = 0; i < here; i++)
            narrow[i] = (uint16_t)ids[done + i];
        write_bytes(writer, narrow, here * sizeof narrow[0]);
        done += here;
    }
    return writer->file.status;
}

enum status token_cache_writer_publish(struct token_cache_writer *writer, const struct token_cache_key *key,
                                       int64_t id_limit, const struct utf8_damage *damage, const char *path) {
    struct cache_footer footer = {.key = *key,
                                  .count = writer->count,
                                  .id_limit = id_limit,
                                  .damage = *damage,
                                  .tokens_hash = XXH3_64bits_digest(writer->hash)};
    footer.footer_hash = hash_footer(&footer);
    file_writer_write(&writer->file, &footer, sizeof footer);
    enum status status = file_writer_close(&writer->file);
    if (status == STATUS_OK) {
        status = file_rename(writer->beside, path);
        if (status != STATUS_OK) unlink(writer->beside);
    }
    close_writer(writer);
    return status;
}

void token_cache_writer_abandon(struct token_cache_writer *writer) {
    if (!writer->beside) return;
    file_writer_abandon(&writer->file);
    close_writer(writer);
}
