#!/bin/sh
# ctest: PROCESSORS 2 LABELS long
# Four edits add a setting of the recipe: a row of the table, a field in the recipe, one in ballast.h, and its use. In a
# copy of the tree with these edits, the parser, help, config files, plan files, schemas and the library have the
# setting.
set -eu
fail() { echo "$*" && exit 1; }
build=$(dirname "$BALLAST_PROGRAM")
[ -f "$build/build.ninja" ] || { echo "skipped: needs the build directory of ninja" && exit 77; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
source=$(cd "$BALLAST_SOURCE" && pwd)
copy=$place/tree
mkdir "$copy"
cp -r "$source/src" "$source/include" "$copy"

edit() { # FILE SCRIPT
    sed "$2" "$source/$1" >"$copy/$1"
    cmp -s "$source/$1" "$copy/$1" && fail "$1 has no place for the edit"
    return 0
}
edit src/plan/setting_list.h '/^#define SETTING_LIST_RECIPE/a\
    X(logit_scale, "logit_scale", "logit-scale", SETTING_FLOAT_IN(0, 8), SETTING_FLOAT_DEFAULT(1.5), .later = true, \\\
      .rule = "logits keep their order", .commands = COMMANDS_STEP, .group = GROUP_TRAINING,                     \\\
      .help = "factor of logits")                                                                      \\'
edit src/plan/plan.h 's/^struct recipe {/&\n    double logit_scale;/'
edit include/ballast.h 's/^struct ballast_plan_options {/&\n    double logit_scale;/
    /^#define BALLAST_PLAN_OPTIONS_INIT/,/^void/ s/BALLAST_PLAN_OPTIONS_VERSION,/-1, &/'
edit src/session/programs.c 's/^#include "session\/programs.h"/&\ndouble logit_scale_of(const struct recipe *recipe);\ndouble logit_scale_of(const struct recipe *recipe) { return recipe->logit_scale; }/'
count=$(diff -rq "$source/src" "$copy/src" | wc -l)
count=$((count + $(diff -rq "$source/include" "$copy/include" | wc -l)))
[ "$count" -le 4 ] || fail "$count files changed"

cat >"$place/main.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BALLAST_EXPERIMENTAL
#include "api/library.h"
#include "cli/program.h"
#include "cli/commands/command.h"
#include "cli/step_options.h"
#include "session/options.h"

double logit_scale_of(const struct recipe *recipe);

static void hold(int good, const char *what) {
    if (good) return;
    printf("%s: %s\n", what, status_message());
    exit(1);
}

static int is(double value, double expected) { return value <= expected && value >= expected; }

static void parse(int count, char **arguments, struct options *out) {
    hold(options_parse(&command_train, count, arguments, out) == STATUS_OK, "parse");
}

/* The value that a step's programs see. */
static double resolved(const struct plan_options *options, struct plan *out) {
    hold(plan_options_resolve(options, NULL, &backend_cpu, NULL, NULL, NULL, out) == STATUS_OK, "resolve");
    return logit_scale_of(&out->recipe);
}

int main(int count, char **arguments) {
    if (count > 1) return cli_run(count - 1, arguments + 1);
    struct options options;
    struct plan_options wanted;
    struct plan plan, back;

    char *given[] = {"model", "data", "-o", "run", "--logit-scale", "3"};
    parse(6, given, &options);
    plan_options_init(&wanted);
    hold(options_take(&options, &plan_settings, &wanted) == STATUS_OK && is(resolved(&wanted, &plan), 3), "option");
    options_free(&options);

    char *config[] = {"model", "data", "-o", "run", "--config", "config.json"};
    parse(6, config, &options);
    plan_options_init(&wanted);
    hold(options_take(&options, &plan_settings, &wanted) == STATUS_OK && is(resolved(&wanted, &plan), 4), "config");
    options_free(&options);

    char *wrong[] = {"model", "data", "-o", "run", "--logit-scale", "9"};
    hold(options_parse(&command_train, 6, wrong, &options) == STATUS_BAD_INPUT, "range");
    hold(strstr(status_message(), "--logit-scale: 9 is not legal") && strstr(status_hint_text(), "at least 0 and at most 8"), "message");
    options_free(&options);

    json_t *object = plan_to_json(&plan), *recipe = json_object_get(object, "recipe");
    hold(plan_from_json("plan.json", object, &back) == STATUS_OK && is(back.recipe.logit_scale, 4), "file");
    hold(recipe_require_equal(&plan.recipe, &back.recipe) == STATUS_OK, "equal");
    back.recipe.logit_scale = 1;
    hold(recipe_require_equal(&plan.recipe, &back.recipe) == STATUS_BAD_INPUT, "differ");
    json_object_del(recipe, "logit_scale");
    hold(plan_from_json("plan.json", object, &back) == STATUS_OK && is(back.recipe.logit_scale, 1.5), "earlier file");
    json_object_set_new(recipe, "logit_scale", json_real(9));
    hold(plan_from_json("plan.json", object, &back) == STATUS_BAD_INPUT, "file's range");
    json_decref(object);

    struct ballast_plan_options public = BALLAST_PLAN_OPTIONS_INIT;
    hold(library_read_plan(&public, false, &wanted) == STATUS_OK && is(resolved(&wanted, &plan), 1.5), "default");
    public.logit_scale = 5;
    hold(library_read_plan(&public, false, &wanted) == STATUS_OK && is(resolved(&wanted, &plan), 5), "library");
    public.logit_scale = 9;
    hold(library_read_plan(&public, false, &wanted) == STATUS_BAD_INPUT, "library's range");
    return 0;
}
END
echo '{"logit_scale": 4}' >"$place/config.json"

# The files that settings go through are compiled anew; all others are those of the build, and are not called with the
# structs that have grown.
compile() { # SOURCE OBJECT
    command=$(cd "$build" && ninja -t commands ballast | grep -m 1 -- "-c $source/src/plan/settings.c\$" |
        sed "s|$source/src/plan/settings.c|$1|g; s|-I$source/|-I$copy/|g; s|-o [^ ]*|-o $2|; s|-M[TF] [^ ]*||g; s|-MD||; s|-O2|-O0|; s| -Werror | |g")
    (cd "$build" && sh -c "$command") || fail "$1 does not compile"
}
for file in src/plan/settings.c src/plan/recipe.c src/plan/plan.c src/plan/policy.c src/session/options.c \
    src/session/programs.c src/cli/options.c src/cli/step_options.c src/cli/help.c src/cli/program.c src/api/call.c; do
    compile "$copy/$file" "$place/$(echo "$file" | tr / _).o"
done
compile "$place/main.c" "$place/main.o"
link=$(cd "$build" && ninja -t commands ballast | tail -n 1 |
    sed "s|[^ ]*/main.c.o|$place/*.o|; s|-o ballast|-o $place/program|; s|/usr/bin/cc|& -Wl,--allow-multiple-definition|")
(cd "$build" && sh -c "$link") || fail "does not link"

cd "$place"
./program || fail "the setting is not known everywhere"
./program train --help-all | grep -q -- '--logit-scale X .*factor of logits \[default: 1.5\]' || fail "not in --help"
./program help options | grep -q '^| `--logit-scale X` | `logit_scale` | .* | factor of logits' || fail "not in docs/options.md"
./program help schemas | grep -A 5 '"logit_scale": {' | grep -q '"maximum": 8.0' || fail "not in the schemas"
