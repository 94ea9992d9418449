#include "profile/cache.h"

#include <math.h>
#include <xxhash.h>

#include "base/folder.h"
#include "base/json.h"
#include "base/terminal.h"
#include "machine/rates.h"
#include "plan/plan.h"
#include "profile/operator_bench.h"
#include "profile/profile.h"

enum { DEVICE_BYTES = 512, MESH_KEY_BYTES = 32, CACHE_VERSION = 2, FILE_LIMIT_BYTES = 64 << 20 };
enum cache_section { SECTION_OPERATORS, SECTION_PRODUCTS, SECTION_RATES, SECTION_LINKS, SECTIONS };
static const char *const sections[SECTIONS] = {"operators", "products", "rates", "links"};
/* Less time than any measurement can have. */
static const double MIN_S = 1e-10, MAX_S = 1e30;
/* Larger than for operators: the times of disks always vary. */
static const double NOISY_RATES = 0.5;

/* The lower of a member's part of the available memory and the caller's limit; the least value where the system does
 * not tell. */
static int64_t find_memory(int64_t allowed, int members) {
    struct cluster_memory memory;
    int64_t bytes = PROFILE_MEMORY_BYTES;
    cluster_find_memory(&memory);
    memory.capacity_bytes /= members;
    if (allowed > 0 && allowed < memory.capacity_bytes) memory.capacity_bytes = allowed;
    while (bytes > PROFILE_MEMORY_BYTES_MIN && bytes > memory.capacity_bytes)
        bytes /= 2;
    return bytes;
}

static enum status describe_machine(const struct backend *backend, struct profile_cache *cache) {
    struct cluster cluster;
    int members = contention_members(&cache->contention);
    const struct cluster_device *device = &cluster.device;
    char other[DEVICE_BYTES] = "", together[32] = "";
    if (members > 1) snprintf(together, sizeof together, "; %d at once", members);
    TRY(cluster_measure(&cluster));
    if (backend->describe) TRY(backend->describe(other, sizeof other));
    cache->crowded = !cache->contention.bound && members > 1 && members * cache->threads > device->hardware_threads;
    cache->machine =
        mem_format("%s; %d cores, %d hardware threads; %s %s%s%s; %d threads%s; kernels %d; keys %d", device->name,
                   device->cores, device->hardware_threads, backend->name, backend->isa(), other[0] ? ": " : "", other,
                   cache->threads, together, backend->kernels_version, OPERATOR_KEY_VERSION);
    return cache->machine ? STATUS_OK : STATUS_FAILED;
}

static char *file_path(const char *folder, const char *machine) {
    char *name = mem_format("profile-%016" PRIx64 ".json", (uint64_t)XXH3_64bits(machine, strlen(machine)));
    char *path = name ? path_join(folder, name) : NULL;
    mem_free(name);
    return path;
}

static json_t *section_of(const struct profile_cache *cache, enum cache_section section) {
    return json_object_get(cache->values, sections[section]);
}

static bool read_float(const json_t *value, double min, double *out) {
    *out = json_number_value(value);
    return json_is_number(value) && isfinite(*out) && *out >= min && *out < MAX_S;
}

/* Whether the value is possible. */
static bool read_measurement(const json_t *value, struct measurement *out) {
    struct measurement found;
    if (!read_float(json_array_get(value, 0), MIN_S, &found.seconds)) return false;
    if (!read_float(json_array_get(value, 1), 0, &found.spread)) return false;
    *out = found;
    return true;
}

static bool read_rates(const json_t *value, struct cluster_rates *out) {
    if (value && rates_from_json("rates", value, out) == STATUS_OK) return true;
    if (value) status_clear();
    return false;
}

bool rates_noisy(const struct cluster_rates *rates) { return rates->noise > NOISY_RATES; }

/* Whether another measurement of the same thing replaces ours, which is noisy. */
static bool prefers_theirs(enum cache_section section, const json_t *ours, const json_t *theirs) {
    struct measurement our, their;
    struct cluster_rates our_rates, their_rates;
    if (section == SECTION_RATES)
        return read_rates(ours, &our_rates) && read_rates(theirs, &their_rates) && rates_noisy(&our_rates) &&
               their_rates.noise < our_rates.noise;
    return read_measurement(ours, &our) && read_measurement(theirs, &their) && measurement_noisy(&our) &&
           their.seconds < our.seconds;
}

static void merge_section(struct profile_cache *cache, enum cache_section section, json_t *theirs) {
    json_t *ours = section_of(cache, section), *value;
    const char *key;
    json_object_foreach(theirs, key, value) {
        const json_t *own = json_object_get(ours, key);
        if (!own || prefers_theirs(section, own, value)) json_object_set(ours, key, value);
    }
}

/* Adds a file's values that the cache lacks, or has worse values of. Ignores files of other machines. */
static void merge_file(struct profile_cache *cache, const char *path, const char *of_machine) {
    json_t *file;
    if (!file_exists(path) || json_read_object(path, FILE_LIMIT_BYTES, &file) != STATUS_OK) {
        status_clear();
        return;
    }
    const char *machine = json_string_value(json_object_get(file, "machine"));
    bool own = machine && strcmp(machine, of_machine) == 0 &&
               json_integer_value(json_object_get(file, "version")) == CACHE_VERSION;
    for (int i = 0; own && i < SECTIONS; i++)
        merge_section(cache, (enum cache_section)i, json_object_get(file, sections[i]));
    json_decref(file);
}

/* Reads this machine's file. */
static enum status name_file(const char *folder, bool anew, struct profile_cache *cache) {
    if (!folder) return STATUS_OK;
    cache->path = file_path(folder, cache->machine);
    if (cache->path && !anew) merge_file(cache, cache->path, cache->machine);
    return cache->path ? STATUS_OK : STATUS_FAILED;
}

/* Switches to the file of the same machine with little memory. */
static enum status narrow(const char *folder, bool anew, struct profile_cache *cache) {
    char *machine = mem_format("%s; in %" PRId64 " MiB", cache->machine, cache->memory_bytes >> 20);
    if (!machine) return STATUS_FAILED;
    mem_free(cache->machine);
    mem_free(cache->path);
    cache->machine = machine;
    cache->path = NULL;
    return name_file(folder, anew, cache);
}

enum status profile_cache_open(const struct backend *backend, const struct profile_options *options,
                               int64_t memory_bytes, struct profile_cache *out) {
    const char *folder = options->cache_folder;
    *out = (struct profile_cache){.threads = options->threads};
    if (options->contention && !backend->streams) out->contention = *options->contention;
    out->memory_bytes = find_memory(memory_bytes, contention_members(&out->contention));
    TRY(describe_machine(backend, out));
    out->values = json_pack("{s:{}, s:{}, s:{}, s:{}}", sections[SECTION_OPERATORS], sections[SECTION_PRODUCTS],
                            sections[SECTION_RATES], sections[SECTION_LINKS]);
    if (!out->values) return status_no_memory(0, "the measurements that are kept");
    TRY(name_file(folder, options->anew, out));
    return out->memory_bytes < PROFILE_MEMORY_BYTES ? narrow(folder, options->anew, out) : STATUS_OK;
}

static enum status write_file(struct profile_cache *cache) {
    merge_file(cache, cache->path, cache->machine);
    json_auto_t *file = json_pack("{s:i, s:s}", "version", CACHE_VERSION, "machine", cache->machine);
    if (!file || json_object_update(file, cache->values) != 0)
        return status_no_memory(0, "the measurements that are kept");
    char *slash = strrchr(cache->path, '/');
    if (slash) *slash = '\0';
    enum status status = slash ? folder_create(cache->path) : STATUS_OK;
    if (slash) *slash = '/';
    TRY(status);
    return json_write(cache->path, file);
}

/* If closing follows a failure, that failure's message stays. */
static void write_quietly(struct profile_cache *cache) {
    struct status_copy failure;
    status_save(status_message()[0] ? STATUS_FAILED : STATUS_OK, &failure);
    if (write_file(cache) != STATUS_OK) log_note("measurements are not kept: %s", status_message());
    status_clear();
    (void)status_restore(&failure);
}

void profile_cache_close(struct profile_cache *cache) {
    if (cache->path && cache->changed) write_quietly(cache);
    json_decref(cache->values);
    mem_free(cache->path);
    mem_free(cache->machine);
    *cache = (struct profile_cache){0};
}

static enum status put(struct profile_cache *cache, enum cache_section section, const char *key, json_t *value) {
    cache->changed = true;
    if (json_object_set_new(section_of(cache, section), key, value) == 0) return STATUS_OK;
    return status_no_memory(0, "the measurements that are kept");
}

static enum status put_measurement(struct profile_cache *cache, enum cache_section section, const char *key,
                                   struct measurement *measurement) {
    struct measurement kept;
    if (cache->crowded) measurement->spread = 0;
    if (read_measurement(json_object_get(section_of(cache, section), key), &kept))
        *measurement = measurement_lower(&kept, measurement);
    return put(cache, section, key, json_pack("[f, f]", measurement->seconds, measurement->spread));
}

bool profile_cache_find(const struct profile_cache *cache, const char *key, struct measurement *out) {
    return read_measurement(json_object_get(section_of(cache, SECTION_OPERATORS), key), out);
}

enum status profile_cache_put(struct profile_cache *cache, const char *key, struct measurement *measurement) {
    return put_measurement(cache, SECTION_OPERATORS, key, measurement);
}

bool profile_cache_find_rates(const struct profile_cache *cache, const char *key, struct cluster_rates *out) {
    return read_rates(json_object_get(section_of(cache, SECTION_RATES), key), out);
}

enum status profile_cache_put_rates(struct profile_cache *cache, const char *key, const struct cluster_rates *rates) {
    struct cluster_rates kept, lower = *rates;
    if (cache->crowded) lower.noise = 0;
    if (profile_cache_find_rates(cache, key, &kept)) lower = rates_lower(&kept, &lower);
    return put(cache, SECTION_RATES, key, rates_to_json(&lower));
}

bool profile_cache_find_product(const struct profile_cache *cache, enum dtype dtype, struct measurement *out) {
    return read_measurement(json_object_get(section_of(cache, SECTION_PRODUCTS), dtype_name(dtype)), out);
}

enum status profile_cache_put_product(struct profile_cache *cache, enum dtype dtype, struct measurement *measurement) {
    return put_measurement(cache, SECTION_PRODUCTS, dtype_name(dtype), measurement);
}

static void print_mesh(const struct mesh *mesh, char text[MESH_KEY_BYTES]) {
    snprintf(text, MESH_KEY_BYTES, "%dx%d", mesh->nodes, mesh->per_node);
}

/* Files of before have neither: noise that is not told is no promise. */
static bool is_of_way(const json_t *value, const char *way) {
    const char *kept = json_string_value(json_object_get(value, "way"));
    double noise;
    return kept && way[0] && strcmp(kept, way) == 0 && read_float(json_object_get(value, "noise"), 0, &noise) &&
           noise <= NOISY_RATES;
}

bool profile_cache_find_links(const struct profile_cache *cache, const struct mesh *mesh, const char *way,
                              struct cluster_rates *rates) {
    char key[MESH_KEY_BYTES];
    struct cluster_rates found = *rates;
    print_mesh(mesh, key);
    const json_t *value = json_object_get(section_of(cache, SECTION_LINKS), key);
    if (way && !is_of_way(value, way)) return false;
    if (value && links_from_json("links", json_object_get(value, "links"), &found.links) == STATUS_OK &&
        rates_slowdown_from_json("links", json_object_get(value, "slowdown"), &found) == STATUS_OK) {
        *rates = found;
        return true;
    }
    if (value) status_clear();
    return false;
}

enum status profile_cache_put_links(struct profile_cache *cache, const char *way, const struct cluster_rates *rates) {
    char key[MESH_KEY_BYTES];
    struct cluster_rates whole = *rates; /* only the slowdowns of and by messages were measured */
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            whole.slowdown[a][b] = fmax(1, rates->slowdown[a][b]);
    print_mesh(&rates->links.mesh, key);
    return put(cache, SECTION_LINKS, key,
               json_pack("{s:s, s:f, s:o, s:o}", "way", way, "noise", cache->crowded ? 0.0 : rates->noise, "links",
                         links_to_json(&rates->links), "slowdown", rates_slowdown_to_json(&whole)));
}
