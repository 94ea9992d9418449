#include "session/checkpoint/shared_folder.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

/* A network file system may show a new name a little later. */
enum { LOOKS = 10, LOOK_NS = 100000000 };

/* The token's name, which is also what the file holds; empty where rank 0 could not write it. */
struct token {
    char name[64];
};

static enum status write_token(const char *folder, struct token *token) {
    char *path = path_join(folder, "token"), *beside = path ? path_beside(path, file_temporary_prefix) : NULL;
    enum status status = beside ? STATUS_OK : STATUS_FAILED;
    if (beside) {
        snprintf(token->name, sizeof token->name, "%s", path_name(beside));
        status = file_replace(beside, token->name, sizeof token->name);
    }
    mem_free(beside);
    mem_free(path);
    return status;
}

static bool read_token(const char *path, const struct token *token) {
    char *text;
    size_t bytes;
    if (file_read(path, sizeof token->name, &text, &bytes) != STATUS_OK) return false;
    bool same = bytes == sizeof token->name && memcmp(text, token->name, bytes) == 0;
    mem_free(text);
    return same;
}

static enum status find_token(const struct comm *comm, const char *folder, const struct token *token) {
    char *path = path_join(folder, token->name);
    if (!path) return STATUS_FAILED;
    bool found = read_token(path, token);
    for (int i = 1; i < LOOKS && !found; i++) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        found = read_token(path, token);
    }
    mem_free(path);
    if (found) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: host %s does not see there what host %s writes", folder,
                     comm->host[comm->rank], comm->host[0]);
    return status_hint(STATUS_BAD_INPUT, "give a run's directory on a file system that all hosts share");
}

static void remove_token(const char *folder, const struct token *token) {
    char *path = path_join(folder, token->name);
    if (path) unlink(path);
    mem_free(path);
}

enum status shared_folder_check(struct comm *comm, const char *folder) {
    struct comm_group all = comm_group_all(comm);
    struct token mine = {""};
    if (all.count == 1) return STATUS_OK;
    struct token *tokens = mem_array((size_t)all.count, sizeof *tokens);
    enum status status = tokens ? STATUS_OK : STATUS_FAILED;
    if (tokens && comm->rank == 0) status = write_token(folder, &mine);
    TRY_GOTO(status, comm_agree(comm, status), done);
    TRY_GOTO(status, comm_all_gather(comm, &all, &mine, sizeof mine, tokens), done);
    status = comm_agree(comm, find_token(comm, folder, &tokens[0]));
done:
    if (comm->rank == 0 && mine.name[0]) remove_token(folder, &mine);
    mem_free(tokens);
    return status;
}
