/* The table of wire.h over one MPI library: compiled once against each library's mpi.h, into ballast-mpi-NAME.so. Uses
 * nothing but MPI-3 and the C library. Not for other files to include. */
#include <limits.h>
#include <mpi.h>
#include <unistd.h>

#include "comm/wire.h"

struct request {
    MPI_Request handle;
    enum wire_kind kind;
    bool made, active;
};

static MPI_Comm ranks; /* the world, numbered as renumber said */
static struct request *requests;
static int request_count;
static char trouble[MPI_MAX_ERROR_STRING + 64];

static const char *check(const char *what, int code) {
    if (code == MPI_SUCCESS) return NULL;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    snprintf(trouble, sizeof trouble, "%s: %.*s", what, length, text);
    return trouble;
}

static const char *no_memory(void) { return "out of memory"; }

#define CHECK(what, call)                                                                                              \
    do {                                                                                                               \
        const char *error_ = check(what, call);                                                                        \
        if (error_) return error_;                                                                                     \
    } while (0)

/* By one thread, but not necessarily the first of the process. */
static const char *plugin_open(void *context, struct wire_world *out) {
    (void)context;
    int provided;
    CHECK("MPI_Init_thread", MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided));
    if (provided < MPI_THREAD_SERIALIZED) return "this MPI allows calls by its first thread alone";
    CHECK("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &ranks));
    CHECK("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN));
    CHECK("MPI_Comm_rank", MPI_Comm_rank(ranks, &out->rank));
    CHECK("MPI_Comm_size", MPI_Comm_size(ranks, &out->ranks));
    char text[MPI_MAX_LIBRARY_VERSION_STRING], *end;
    int length;
    CHECK("MPI_Get_library_version", MPI_Get_library_version(text, &length));
    if ((end = strpbrk(text, ",\n"))) *end = '\0';
    for (char *tab = text; (tab = strchr(tab, '\t'));)
        *tab = ' ';
    snprintf(out->library, sizeof out->library, "%.*s", WIRE_TEXT_BYTES - 1, text);
    if (gethostname(out->host, sizeof out->host - 1) != 0) strcpy(out->host, "?");
    out->host[sizeof out->host - 1] = '\0';
    return NULL;
}

static const char *plugin_find_machines(void *context, int *machine) {
    (void)context;
    MPI_Comm near;
    int rank, lowest;
    CHECK("MPI_Comm_rank", MPI_Comm_rank(ranks, &rank));
    CHECK("MPI_Comm_split_type", MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &near));
    CHECK("MPI_Allreduce", MPI_Allreduce(&rank, &lowest, 1, MPI_INT, MPI_MIN, near));
    CHECK("MPI_Comm_free", MPI_Comm_free(&near));
    return check("MPI_Allgather", MPI_Allgather(&lowest, 1, MPI_INT, machine, 1, MPI_INT, ranks));
}

static const char *plugin_renumber(void *context, int rank) {
    (void)context;
    MPI_Comm numbered;
    CHECK("MPI_Comm_split", MPI_Comm_split(ranks, 0, rank, &numbered));
    CHECK("MPI_Comm_free", MPI_Comm_free(&ranks));
    ranks = numbered;
    return check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN));
}

static int find_place(void) {
    for (int i = 0; i < request_count; i++)
        if (!requests[i].made) return i;
    int count = request_count ? 2 * request_count : 64;
    struct request *grown = realloc(requests, (size_t)count * sizeof *grown);
    if (!grown) return -1;
    memset(grown + request_count, 0, (size_t)(count - request_count) * sizeof *grown);
    requests = grown;
    int place = request_count;
    request_count = count;
    return place;
}

static int initialise(enum wire_kind kind, void *base, int count, MPI_Datatype type, int peer, int tag,
                      MPI_Request *out) {
    switch (kind) {
    case WIRE_SEND: return MPI_Send_init(base, count, type, peer, tag, ranks, out);
    case WIRE_READY_SEND: return MPI_Rsend_init(base, count, type, peer, tag, ranks, out);
    case WIRE_SYNC_SEND: return MPI_Ssend_init(base, count, type, peer, tag, ranks, out);
    case WIRE_RECEIVE: return MPI_Recv_init(base, count, type, peer, tag, ranks, out);
    }
    return MPI_ERR_ARG;
}

/* Several pieces are one datatype of absolute addresses. */
static const char *make_type(const struct wire_piece *pieces, int count, MPI_Datatype *out) {
    int *lengths = malloc((size_t)count * sizeof *lengths);
    MPI_Aint *places = malloc((size_t)count * sizeof *places);
    const char *error = !lengths || !places ? no_memory() : NULL;
    for (int i = 0; i < count && !error; i++) {
        lengths[i] = (int)pieces[i].bytes;
        error = check("MPI_Get_address", MPI_Get_address(pieces[i].address, &places[i]));
    }
    if (!error)
        error = check("MPI_Type_create_hindexed", MPI_Type_create_hindexed(count, lengths, places, MPI_BYTE, out));
    if (!error) error = check("MPI_Type_commit", MPI_Type_commit(out));
    free(lengths);
    free(places);
    return error;
}

static const char *plugin_request(void *context, enum wire_kind kind, int peer, int tag,
                                  const struct wire_piece *pieces, int count, int *out) {
    (void)context;
    int place = find_place();
    if (place < 0) return no_memory();
    for (int i = 0; i < count; i++)
        if (pieces[i].bytes > INT_MAX) return "a piece is longer than 2 GiB";
    struct request *request = &requests[place];
    request->kind = kind;
    if (count <= 1) {
        void *base = count ? pieces[0].address : NULL;
        CHECK("a request",
              initialise(kind, base, count ? (int)pieces[0].bytes : 0, MPI_BYTE, peer, tag, &request->handle));
    } else {
        MPI_Datatype type;
        const char *error = make_type(pieces, count, &type);
        if (error) return error;
        CHECK("a request", initialise(kind, MPI_BOTTOM, 1, type, peer, tag, &request->handle));
        CHECK("MPI_Type_free", MPI_Type_free(&type)); /* gone with the request */
    }
    request->made = true;
    request->active = false;
    *out = place;
    return NULL;
}

static const char *plugin_start(void *context, int index) {
    (void)context;
    requests[index].active = true;
    return check("MPI_Start", MPI_Start(&requests[index].handle));
}

static const char *plugin_test(void *context, int index, bool *done) {
    (void)context;
    int flag = 1;
    if (requests[index].active) CHECK("MPI_Test", MPI_Test(&requests[index].handle, &flag, MPI_STATUS_IGNORE));
    if (flag) requests[index].active = false;
    *done = flag;
    return NULL;
}

static void plugin_forget(void *context, int index) {
    (void)context;
    struct request *request = &requests[index];
    if (request->active && request->kind == WIRE_RECEIVE) MPI_Cancel(&request->handle);
    if (request->active) MPI_Wait(&request->handle, MPI_STATUS_IGNORE);
    MPI_Request_free(&request->handle);
    *request = (struct request){0};
}

static void plugin_abort(void *context, int status) {
    (void)context;
    MPI_Abort(MPI_COMM_WORLD, status);
}

static const char *plugin_close(void *context) {
    (void)context;
    CHECK("MPI_Comm_free", MPI_Comm_free(&ranks));
    CHECK("MPI_Finalize", MPI_Finalize());
    free(requests);
    requests = NULL;
    request_count = 0;
    return NULL;
}

static const struct wire table = {
    .version = WIRE_VERSION,
    .name = PLUGIN_NAME,
    .open = plugin_open,
    .find_machines = plugin_find_machines,
    .renumber = plugin_renumber,
    .request = plugin_request,
    .start = plugin_start,
    .test = plugin_test,
    .forget = plugin_forget,
    .abort = plugin_abort,
    .close = plugin_close,
};

__attribute__((visibility("default"))) const struct wire *ballast_wire(void);
const struct wire *ballast_wire(void) { return &table; }
