#include "profile/profile_cache.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/folder.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/rates_json.h"
#include "plan/plan.h"
#include "profile/operator_key.h"

enum { CACHE_VERSION = 1, FILE_LIMIT_BYTES = 64 << 20 };
static const char *const sections[] = {"operators", "rates", "products"};
enum { SECTIONS = sizeof sections / sizeof *sections };

static enum status describe_machine(const struct backend *backend, int threads, char **out) {
    struct cluster cluster;
    const struct cluster_device *device = &cluster.device;
    TRY(cluster_measure(&cluster));
    *out = mem_format("%s; %d cores, %d hardware threads; %s %s; %d threads; kernels %d; keys %d", device->name,
                      device->cores, device->hardware_threads, backend->name, backend->isa(), threads,
                      RECIPE_KERNELS_VERSION, OPERATOR_KEY_VERSION);
    return *out ? STATUS_OK : STATUS_FAILED;
}

static char *file_path(const char *folder, const char *machine) {
    char *name = mem_format("profile-%016" PRIx64 ".json", (uint64_t)XXH3_64bits(machine, strlen(machine)));
    char *path = name ? path_join(folder, name) : NULL;
    mem_free(name);
    return path;
}

static json_t *section_of(const struct profile_cache *cache, const char *name) {
    return json_object_get(cache->values, name);
}

/* Takes from a file what the cache has not; a file that is not this machine's has nothing. */
static void merge_file(struct profile_cache *cache) {
    json_t *file;
    if (!file_exists(cache->path) || json_read_object(cache->path, FILE_LIMIT_BYTES, &file) != STATUS_OK) {
        status_clear();
        return;
    }
    const char *machine = json_string_value(json_object_get(file, "machine"));
    bool own = machine && strcmp(machine, cache->machine) == 0 &&
               json_integer_value(json_object_get(file, "version")) == CACHE_VERSION;
    for (int i = 0; own && i < SECTIONS; i++) {
        json_t *theirs = json_object_get(file, sections[i]);
        if (json_is_object(theirs)) json_object_update_missing(section_of(cache, sections[i]), theirs);
    }
    json_decref(file);
}

static enum status name_file(const char *folder, struct profile_cache *cache) {
    if (!folder) return STATUS_OK;
    cache->path = file_path(folder, cache->machine);
    return cache->path ? STATUS_OK : STATUS_FAILED;
}

enum status profile_cache_open(const char *folder, const struct backend *backend, int threads, bool anew,
                               struct profile_cache *out) {
    *out = (struct profile_cache){0};
    TRY(describe_machine(backend, threads, &out->machine));
    out->values = json_pack("{s:{}, s:{}, s:{}}", sections[0], sections[1], sections[2]);
    if (!out->values) return status_no_memory(0, "the measurements that are kept");
    TRY(name_file(folder, out));
    if (out->path && !anew) merge_file(out);
    return STATUS_OK;
}

static enum status write_file(struct profile_cache *cache) {
    merge_file(cache);
    json_t *file = json_pack("{s:i, s:s}", "version", CACHE_VERSION, "machine", cache->machine);
    if (!file || json_object_update(file, cache->values) != 0) {
        json_decref(file);
        return status_no_memory(0, "the measurements that are kept");
    }
    char *slash = strrchr(cache->path, '/');
    if (slash) *slash = '\0';
    enum status status = slash ? folder_create(cache->path) : STATUS_OK;
    if (slash) *slash = '/';
    if (status == STATUS_OK) status = json_write(cache->path, file);
    json_decref(file);
    return status;
}

void profile_cache_close(struct profile_cache *cache) {
    if (cache->path && cache->changed && write_file(cache) != STATUS_OK) {
        log_note("what was measured is not kept: %s", status_message());
        status_clear();
    }
    json_decref(cache->values);
    mem_free(cache->path);
    mem_free(cache->machine);
    *cache = (struct profile_cache){0};
}

static enum status put(struct profile_cache *cache, const char *section, const char *key, json_t *value) {
    cache->changed = true;
    if (json_object_set_new(section_of(cache, section), key, value) == 0) return STATUS_OK;
    return status_no_memory(0, "the measurements that are kept");
}

/* Whether it is a number that a measurement can give. */
static bool read_real(const json_t *value, double least, double *out) {
    *out = json_number_value(value);
    return json_is_number(value) && isfinite(*out) && *out >= least && *out < 1e30;
}

bool profile_cache_find(const struct profile_cache *cache, const char *key, struct measurement *out) {
    const json_t *value = json_object_get(section_of(cache, "operators"), key);
    struct measurement found;
    if (!read_real(json_array_get(value, 0), 1e-10, &found.seconds)) return false;
    if (!read_real(json_array_get(value, 1), 0, &found.spread)) return false;
    *out = found;
    return true;
}

enum status profile_cache_put(struct profile_cache *cache, const char *key, const struct measurement *measurement) {
    return put(cache, "operators", key, json_pack("[f, f]", measurement->seconds, measurement->spread));
}

bool profile_cache_find_rates(const struct profile_cache *cache, const char *key, struct cluster_rates *out) {
    const json_t *value = json_object_get(section_of(cache, "rates"), key);
    if (value && rates_from_json(cache->path ? cache->path : "rates", value, out) == STATUS_OK) return true;
    if (value) status_clear();
    return false;
}

enum status profile_cache_put_rates(struct profile_cache *cache, const char *key, const struct cluster_rates *rates) {
    return put(cache, "rates", key, rates_to_json(rates));
}

bool profile_cache_find_product(const struct profile_cache *cache, enum dtype dtype, double *flops_per_s) {
    return read_real(json_object_get(section_of(cache, "products"), dtype_name(dtype)), 1, flops_per_s);
}

enum status profile_cache_put_product(struct profile_cache *cache, enum dtype dtype, double flops_per_s) {
    return put(cache, "products", dtype_name(dtype), json_real(flops_per_s));
}
