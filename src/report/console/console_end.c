#include "report/console/console_end.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/size.h"
#include "report/console/console_line.h"
#include "session/engine.h"
#include "text/chat/template.h"

static bool has_chat_template(const char *folder) {
    struct chat_template *chat = NULL;
    bool found = chat_template_find(folder, &chat) == STATUS_OK && chat;
    chat_template_free(chat);
    status_clear();
    return found;
}

void console_account_begin(struct console_account *account, const struct session_plan *plan, const char *run_folder,
                           int64_t first_step, int64_t steps) {
    static const char name[] = "tokenizer.json";
    char *tokenizer = path_join(model_companion_folder(plan->session->model, name), name);
    *account = (struct console_account){.begun_steps = first_step,
                                        .run_steps = steps,
                                        .writes_text = tokenizer && file_exists(tokenizer),
                                        .chats = has_chat_template(plan->session->model->folder),
                                        .adapters = plan->session->model->config.adapter.rank > 0,
                                        .began_ns = clock_now_ns()};
    snprintf(account->run_folder, sizeof account->run_folder, "%s", run_folder);
    mem_free(tokenizer);
}

void console_account_step(struct console_account *account, const struct train_step *step) {
    int64_t before = account->steps > 0 ? account->last.tokens : step->tokens / step->step * (step->step - 1);
    if (account->steps == 0) account->first = *step;
    account->tokens += step->tokens - before;
    account->last = *step;
    account->steps++;
}

void console_account_validation(struct console_account *account, int64_t step, double loss) {
    if (account->valid_step == 0 || loss < account->best_loss) {
        account->best_step = step;
        account->best_loss = loss;
    }
    account->valid_step = step;
    account->valid_loss = loss;
}

static double margin_of(const struct train_step *step) { return preference_margin(step->preference); }

static void print_margins(const struct console_account *account, FILE *out) {
    fprintf(out, "margin: %.4f at step %" PRId64, margin_of(&account->first), account->first.step);
    if (account->steps > 1) fprintf(out, ", %.4f at step %" PRId64, margin_of(&account->last), account->last.step);
    fputc('\n', out);
}

static void print_losses(const struct console_account *account, FILE *out) {
    fprintf(out, "loss: %.4f at step %" PRId64, account->first.loss, account->first.step);
    if (account->steps > 1) fprintf(out, ", %.4f at step %" PRId64, account->last.loss, account->last.step);
    if (account->valid_step > 0) fprintf(out, "; validation: %.4f", account->valid_loss);
    if (account->best_step < account->valid_step)
        fprintf(out, ", lowest %.4f at step %" PRId64, account->best_loss, account->best_step);
    fputc('\n', out);
}

/* Commands that fit the run. */
static void print_next(const struct console_account *account, FILE *out) {
    char argument[PATH_SHELL_BYTES];
    const char *run = path_for_shell(account->run_folder, argument), *lead = "next:", *indent = "     ";
    if (account->writes_text && account->chats) fprintf(out, "%s ballast chat %s\n", lead, run);
    if (account->writes_text && !account->chats) fprintf(out, "%s ballast generate %s --prompt TEXT\n", lead, run);
    if (account->writes_text) lead = indent;
    if (account->adapters) fprintf(out, "%s ballast merge %s -o MODEL_DIR\n", lead, run);
    if (account->adapters) lead = indent;
    if (!account->checkpoint[0] || account->steps == 0) return;
    if (account->last.epochs > 0)
        fprintf(out, "%s ballast resume %s --epochs %g\n", lead, run, 2 * account->last.epochs);
    else
        fprintf(out, "%s ballast resume %s --steps %" PRId64 "\n", lead, run, 2 * account->last.steps);
}

void console_print_end(const struct console_account *account, FILE *out) {
    double seconds = (double)(clock_now_ns() - account->began_ns) * 1e-9;
    char steps[COUNT_TEXT], tokens[COUNT_TEXT], speed[COUNT_TEXT], time[24];
    if (account->steps == 0) {
        fprintf(out, "done: the run was complete\n");
    } else {
        double per_s = seconds > 0 ? (double)account->tokens / seconds : 0;
        fprintf(out, "done: %s step%s in %s, %s tokens, %s tokens/s in all\n", count_print(account->steps, steps),
                account->steps == 1 ? "" : "s", console_print_time(seconds, time), count_print(account->tokens, tokens),
                count_print((int64_t)per_s, speed));
        print_losses(account, out);
        if (account->last.pairs) print_margins(account, out);
    }
    fprintf(out, "model: %s/model\n", account->run_folder);
    print_next(account, out);
}
