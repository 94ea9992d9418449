/* The program as a mixed-integer one for CBC, by its C interface: a binary column for each choice of a variable, one
 * from 0 to 1 for each pair of choices along an edge. */
#include "plan/layout/ilp_cbc.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/fault.h"
#include "plan/layout/ilp_program.h"

#define SONAME "libCbcSolver.so.3"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cbc_library library; /* no functions: not open */

/* POSIX has functions' addresses in objects' pointers. */
static enum status find_functions(void *object, const char *path, struct cbc_library *out) {
    void *found;
#define FIND(name)                                                                                                     \
    found = dlsym(object, "Cbc_" #name);                                                                               \
    if (!found) return status_set(STATUS_FAILED, "%s: has no Cbc_" #name, path);                                       \
    memcpy(&out->name, &found, sizeof found);
    CBC_FUNCTION_LIST(FIND)
    return STATUS_OK;
}

static enum status open_library(const char *path, struct cbc_library *out) {
    void *object = fault_point(FAULT_OPEN) ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *why = dlerror();
        return status_set(STATUS_FAILED, "the integer program needs CBC, which cannot be opened: %s", why ? why : path);
    }
    enum status status = find_functions(object, path, out);
    if (status != STATUS_OK) dlclose(object);
    return status;
}

enum status cbc_library_open(const struct cbc_library **out) {
    const char *given = getenv("BALLAST_CBC");
    struct cbc_library found = {.solve = NULL};
    enum status status = STATUS_OK;
    pthread_mutex_lock(&lock);
    if (!library.solve) status = open_library(given && *given ? given : SONAME, &found);
    if (!library.solve && status == STATUS_OK) library = found;
    pthread_mutex_unlock(&lock);
    if (status != STATUS_OK)
        return status_hint(status, "on Debian: apt-get install coinor-libcbc3; or point BALLAST_CBC at %s", SONAME);
    *out = &library;
    return STATUS_OK;
}

/* Columns in compressed form. */
struct columns {
    VEC(int) start;
    VEC(int) row;
    VEC(double) value;
    VEC(double) lower;
    VEC(double) upper;
    VEC(double) cost;
};
struct rows {
    VEC(double) lower;
    VEC(double) upper;
};
struct mixed {
    const struct ilp_program *ilp;
    struct columns columns;
    struct rows rows;
    double scale;  /* of costs */
    int *pair_row; /* [pairs] the first row of each: rows for choices of low, then of high */
    int moment_row;
};

/* Costs beyond this lose digits in the solver's tolerances, so larger ones are scaled. */
#define COST_MAX 1e9
/* CBC returns binaries as doubles; values above this count as 1. */
#define CHOSEN 0.5

static int64_t spread_of(const int64_t *cost, int count) {
    int64_t min = ilp_min(cost, count), max = min;
    for (int k = 0; k < count; k++)
        if (cost[k] < ILP_FORBIDDEN && cost[k] > max) max = cost[k];
    return max - min;
}

static int pair_entries(const struct ilp_program *ilp, const struct ilp_pair *pair) {
    return ilp->choices[pair->low] * ilp->choices[pair->high];
}

static double cost_scale(const struct ilp_program *ilp) {
    int64_t max = 0;
    for (int v = 0; v < ilp->count; v++) {
        int64_t spread = spread_of(ilp->cost + ilp->first[v], ilp->choices[v]);
        max = spread > max ? spread : max;
    }
    for (size_t i = 0; i < ilp->pairs.count; i++) {
        int64_t spread = spread_of(ilp->pairs.items[i].cost, pair_entries(ilp, &ilp->pairs.items[i]));
        max = spread > max ? spread : max;
    }
    return (double)max > COST_MAX ? COST_MAX / (double)max : 1;
}

static enum status add_rows(struct rows *rows, int count, double lower, double upper) {
    for (int i = 0; i < count; i++) {
        TRY(vec_push(&rows->lower, lower));
        TRY(vec_push(&rows->upper, upper));
    }
    return STATUS_OK;
}

/* A row for each variable: one choice; for each pair and choice: its entries are the choice's; for each moment. */
static enum status make_rows(struct mixed *mixed) {
    const struct ilp_program *ilp = mixed->ilp;
    int count = ilp->count;
    TRY(add_rows(&mixed->rows, ilp->count, 1, 1));
    for (size_t i = 0; i < ilp->pairs.count; i++) {
        const struct ilp_pair *pair = &ilp->pairs.items[i];
        mixed->pair_row[i] = count;
        count += ilp->choices[pair->low] + ilp->choices[pair->high];
        TRY(add_rows(&mixed->rows, ilp->choices[pair->low] + ilp->choices[pair->high], 0, 0));
    }
    mixed->moment_row = count;
    return add_rows(&mixed->rows, ilp->moment_count, 0, 1);
}

static enum status begin_column(struct mixed *mixed, int64_t cost, int64_t min) {
    struct columns *columns = &mixed->columns;
    bool forbidden = cost >= ILP_FORBIDDEN;
    TRY(vec_push(&columns->start, (int)columns->row.count));
    TRY(vec_push(&columns->lower, 0));
    TRY(vec_push(&columns->upper, forbidden ? 0 : 1));
    return vec_push(&columns->cost, forbidden ? 0 : (double)(cost - min) * mixed->scale);
}

static enum status add_value(struct mixed *mixed, int row, double value) {
    TRY(vec_push(&mixed->columns.row, row));
    return vec_push(&mixed->columns.value, value);
}

static enum status add_choice(struct mixed *mixed, int variable, int choice) {
    const struct ilp_program *ilp = mixed->ilp;
    TRY(add_value(mixed, variable, 1));
    for (size_t i = 0; i < ilp->pairs.count; i++) {
        const struct ilp_pair *pair = &ilp->pairs.items[i];
        if (pair->low == variable) TRY(add_value(mixed, mixed->pair_row[i] + choice, -1));
        if (pair->high == variable) TRY(add_value(mixed, mixed->pair_row[i] + ilp->choices[pair->low] + choice, -1));
    }
    for (int m = 0; m < ilp->moment_count; m++) {
        int64_t memory =
            ilp->memory[(size_t)m * (size_t)ilp->first[ilp->count] + (size_t)(ilp->first[variable] + choice)];
        if (memory > 0) TRY(add_value(mixed, mixed->moment_row + m, (double)memory / ((double)ilp->limit + 0.5)));
    }
    return STATUS_OK;
}

static enum status add_pair(struct mixed *mixed, size_t index) {
    const struct ilp_pair *pair = &mixed->ilp->pairs.items[index];
    int rows = mixed->ilp->choices[pair->low], columns = mixed->ilp->choices[pair->high];
    int64_t min = ilp_min(pair->cost, rows * columns);
    for (int a = 0; a < rows; a++) {
        for (int b = 0; b < columns; b++) {
            TRY(begin_column(mixed, pair->cost[a * columns + b], min));
            TRY(add_value(mixed, mixed->pair_row[index] + a, 1));
            TRY(add_value(mixed, mixed->pair_row[index] + rows + b, 1));
        }
    }
    return STATUS_OK;
}

static enum status make_columns(struct mixed *mixed) {
    const struct ilp_program *ilp = mixed->ilp;
    for (int v = 0; v < ilp->count; v++) {
        const int64_t *cost = ilp->cost + ilp->first[v];
        int64_t min = ilp_min(cost, ilp->choices[v]);
        for (int k = 0; k < ilp->choices[v]; k++) {
            TRY(begin_column(mixed, cost[k], min));
            TRY(add_choice(mixed, v, k));
        }
    }
    for (size_t i = 0; i < ilp->pairs.count; i++)
        TRY(add_pair(mixed, i));
    return vec_push(&mixed->columns.start, (int)mixed->columns.row.count);
}

static void mixed_free(struct mixed *mixed) {
    struct columns *columns = &mixed->columns;
    vec_free(&columns->start), vec_free(&columns->row), vec_free(&columns->value);
    vec_free(&columns->lower), vec_free(&columns->upper), vec_free(&columns->cost);
    vec_free(&mixed->rows.lower), vec_free(&mixed->rows.upper);
    mem_free(mixed->pair_row);
}

static Cbc_Model *load(const struct cbc_library *cbc, struct mixed *mixed, int64_t node_limit) {
    struct columns *columns = &mixed->columns;
    Cbc_Model *model = cbc->newModel();
    if (!model) return NULL;
    cbc->setLogLevel(model, 0);
    cbc->loadProblem(model, (int)columns->cost.count, (int)mixed->rows.lower.count, columns->start.items,
                     columns->row.items, columns->value.items, columns->lower.items, columns->upper.items,
                     columns->cost.items, mixed->rows.lower.items, mixed->rows.upper.items);
    for (int i = 0; i < mixed->ilp->first[mixed->ilp->count]; i++)
        cbc->setInteger(model, i);
    cbc->setParameter(model, "presolve", "off"); /* some paths of CoinUtils' presolve leak memory */
    cbc->setAllowableGap(model, 0);
    cbc->setAllowableFractionGap(model, 0);
    cbc->setMaximumNodes(model, node_limit < INT32_MAX ? (int)node_limit : INT32_MAX);
    return model;
}

/* False where it has chosen none or several for a variable. */
static bool read_choices(const struct ilp_program *ilp, const double *value, int *choice) {
    for (int v = 0; v < ilp->count; v++) {
        int taken = 0;
        for (int k = 0; k < ilp->choices[v]; k++)
            if (value[ilp->first[v] + k] > CHOSEN) choice[v] = k, taken++;
        if (taken != 1) return false;
    }
    return true;
}

static void read_result(const struct cbc_library *cbc, const struct ilp_program *ilp, Cbc_Model *model, int *choice,
                        struct cbc_result *out) {
    const double *best = cbc->bestSolution(model);
    bool read = best && read_choices(ilp, best, choice);
    int64_t cost = read ? ilp_program_cost(ilp, choice) : ILP_FORBIDDEN;
    *out = (struct cbc_result){.found = read && cost < ILP_FORBIDDEN && ilp_program_fits(ilp, choice), .cost = cost};
    out->proven = out->found ? cbc->isProvenOptimal(model) : !best && cbc->isProvenInfeasible(model);
}

enum status ilp_solve_cbc(const struct ilp_program *ilp, int64_t node_limit, int *choice, struct cbc_result *out) {
    struct mixed mixed = {.ilp = ilp, .scale = cost_scale(ilp)};
    const struct cbc_library *cbc;
    enum status status = STATUS_FAILED;
    TRY(cbc_library_open(&cbc));
    mixed.pair_row = mem_array(ilp->pairs.count + 1, sizeof *mixed.pair_row);
    if (!mixed.pair_row) return status;
    TRY_GOTO(status, make_rows(&mixed), done);
    TRY_GOTO(status, make_columns(&mixed), done);
    Cbc_Model *model = load(cbc, &mixed, node_limit);
    if (!model) {
        status = status_no_memory(0, "the integer program");
        goto done;
    }
    cbc->solve(model);
    if (cbc->isAbandoned(model))
        status = status_set(STATUS_FAILED, "CBC gave up on the integer program for numerical reasons");
    else
        read_result(cbc, ilp, model, choice, out);
    cbc->deleteModel(model);
done:
    mixed_free(&mixed);
    return status;
}
