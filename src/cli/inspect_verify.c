/* `ballast inspect --verify`. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cli/command.h"
#include "cli/inspect.h"
#include "session/checkpoint/checkpoint.h"

static enum status add_problem(json_t *problems, const char *text) {
    return json_array_append_new(problems, json_string(text)) == 0 ? STATUS_OK : status_no_memory(0, "a summary");
}

static enum status list_problems(struct checkpoint_examination *found, json_t *problems) {
    enum status status = STATUS_OK;
    for (size_t i = 0; i < found->findings.items.count && status == STATUS_OK; i++) {
        char text[MANIFEST_TEXT_BYTES];
        status = add_problem(problems, manifest_finding_print(&found->findings.items.items[i], text));
    }
    vec_free(&found->findings.items);
    return status;
}

/* One directory: {"name", "checksums", "files", "bytes", "problems": [text]}. */
static enum status verify_folder(const char *folder, const char *name, json_t *folders) {
    struct checkpoint_examination found;
    json_t *problems = json_array();
    enum status status = problems ? checkpoint_examine(folder, &found) : status_no_memory(0, "a summary");
    if (status == STATUS_BAD_INPUT) {
        found = (struct checkpoint_examination){.listed = true};
        status = add_problem(problems, status_message());
    } else if (status == STATUS_OK) {
        status = list_problems(&found, problems);
    }
    json_t *row = NULL;
    if (status == STATUS_OK) {
        row = json_pack("{s:s, s:b, s:I, s:I, s:O}", "name", name, "checksums", found.listed, "files",
                        (json_int_t)found.files, "bytes", (json_int_t)found.bytes, "problems", problems);
        status = json_array_append_new(folders, row) == 0 ? STATUS_OK : status_no_memory(0, "a summary");
    }
    json_decref(problems);
    return status;
}

static enum status verify_below(const char *run_folder, const char *name, json_t *folders) {
    char *path = path_join(run_folder, name);
    enum status status = path ? STATUS_OK : STATUS_FAILED;
    if (path && file_is_folder(path)) status = verify_folder(path, name, folders);
    mem_free(path);
    return status;
}

static enum status verify_run(const char *folder, json_t *folders) {
    struct names names;
    TRY(checkpoint_list(folder, &names));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        char *name = path_join("checkpoints", names.items[i]);
        status = name ? verify_below(folder, name, folders) : STATUS_FAILED;
        mem_free(name);
    }
    names_free(&names);
    return status == STATUS_OK ? verify_below(folder, "model", folders) : status;
}

static void print_row(const json_t *row) {
    const json_t *problems = json_object_get(row, "problems"), *problem;
    char size[SIZE_TEXT];
    size_t i;
    bool listed = json_is_true(json_object_get(row, "checksums"));
    printf("%-28s %4lld files %12s  %s\n", json_string_value(json_object_get(row, "name")),
           (long long)json_integer_value(json_object_get(row, "files")),
           size_print(json_integer_value(json_object_get(row, "bytes")), size),
           json_array_size(problems) > 0 ? "damaged"
           : listed                      ? "as written"
                                         : "no checksums: not written by this version of Ballast");
    json_array_foreach((json_t *)(uintptr_t)problems, i, problem) printf("    %s\n", json_string_value(problem));
}

static enum status judge(const char *folder, const json_t *folders) {
    size_t i, damaged = 0, listed = 0;
    const json_t *row;
    json_array_foreach((json_t *)(uintptr_t)folders, i, row) {
        damaged += json_array_size(json_object_get(row, "problems")) > 0;
        listed += json_is_true(json_object_get(row, "checksums"));
    }
    if (damaged > 0)
        return status_set(STATUS_BAD_INPUT, "%s: %zu of %zu directories are damaged", folder, damaged,
                          json_array_size(folders));
    if (listed > 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: has no checksums to compare with", folder);
}

enum status inspect_verify(const char *folder, bool json) {
    if (!file_is_folder(folder))
        return status_set(STATUS_BAD_INPUT, "%s: is not a directory: --verify takes a checkpoint's or a run's", folder);
    json_t *folders = json_array();
    if (!folders) return status_no_memory(0, "a summary");
    enum status status;
    size_t i;
    const json_t *row;
    TRY_GOTO(status,
             folder_holds(folder, "run.json") ? verify_run(folder, folders) : verify_folder(folder, folder, folders),
             done);
    if (json)
        TRY_GOTO(
            status,
            cli_print_json(json_pack("{s:s, s:s, s:O}", "kind", "verification", "path", folder, "folders", folders)),
            done);
    else
        json_array_foreach(folders, i, row) print_row(row);
    status = judge(folder, folders);
done:
    json_decref(folders);
    return status;
}
