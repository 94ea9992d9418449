/* The template engine, rule by rule, compared with Jinja in transformers' environment on the same templates. */
#include "support/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "support/fault_sweep.h"
#include "support/packed_json.h"
#include "text/template/jinja.h"

static enum status render(const char *text, size_t bytes, const json_t *variables, struct jinja_output *out) {
    struct jinja_template *template;
    struct jinja_variable list[64];
    size_t count = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)variables, name, value) {
        assert_true(count < sizeof list / sizeof *list);
        list[count++] = (struct jinja_variable){name, value};
    }
    TRY(jinja_parse("template", text, bytes, &template));
    enum status status = jinja_render(template, list, count, 1721997296, out);
    jinja_free(template);
    return status;
}

static void rules_are_those_of_jinja(void **state) {
    (void)state;
    json_t *fixture = packed_json_read("chat/expressions.json.gz"), *test;
    const json_t *variables = json_object_get(fixture, "variables");
    struct jinja_output output = {0};
    size_t i;
    int wrong = 0, refused = 0;
    json_array_foreach(json_object_get(fixture, "cases"), i, test) {
        const json_t *template = json_object_get(test, "template"), *expected = json_object_get(test, "output");
        const char *error = json_string_value(json_object_get(test, "error"));
        enum status status = render(json_string_value(template), json_string_length(template), variables, &output);
        if (!expected) {
            refused++;
            if (status == STATUS_BAD_INPUT && strstr(status_message(), "template: ")) continue;
            print_error("%s\n  fails with \"%s\"\n", json_string_value(template), error);
            wrong++;
        } else if (status != STATUS_OK) {
            print_error("%s\n  %s\n", json_string_value(template), status_message());
            wrong++;
        } else if (output.text.count != json_string_length(expected) ||
                   memcmp(output.text.items, json_string_value(expected), output.text.count) != 0) {
            print_error("%s\n  makes  %s\n  is     %.*s\n", json_string_value(template), json_string_value(expected),
                        (int)output.text.count, output.text.items);
            wrong++;
        }
    }
    print_message("%zu templates, %d of them refused\n", i, refused);
    jinja_output_free(&output);
    json_decref(fixture);
    assert_int_equal(wrong, 0);
}

static void expect_refused(const char *template, const char *message) {
    struct jinja_output output = {0};
    json_t *none = json_object();
    status_clear();
    enum status status = render(template, strlen(template), none, &output);
    if (status != STATUS_BAD_INPUT || !strstr(status_message(), message))
        fail_msg("%s: \"%s\" does not say \"%s\"", template, status_message(), message);
    json_decref(none);
    jinja_output_free(&output);
}

/* Jinja has these; they are refused by name, with the line. */
static void what_is_not_supported_is_named(void **state) {
    (void)state;
    expect_refused("\n\n{% include 'x' %}", "template: line 3: the statement 'include' is not supported");
    expect_refused("{% block a %}{% endblock %}", "the statement 'block'");
    expect_refused("{% extends 'x' %}", "the statement 'extends'");
    expect_refused("{% filter upper %}{% endfilter %}", "the statement 'filter'");
    expect_refused("{% call m() %}{% endcall %}", "the statement 'call'");
    expect_refused("{% with a = 1 %}{% endwith %}", "the statement 'with'");
    expect_refused("{% for x in [] recursive %}{% endfor %}", "recursive loops");
    expect_refused("{{ 'a' | wordwrap }}", "line 1: the filter 'wordwrap' is not supported");
    expect_refused("{{ 'a' is escaped }}", "the test 'escaped' is not supported");
    expect_refused("\n{{ 'a'.format(1) }}", "line 2: the method 'format' is not supported");
    expect_refused("{{ cycler('a') }}", "'cycler' is undefined, or not supported");
    expect_refused("{{ {}.items }}", "printing a method is not supported");
    expect_refused("{{ {1: 2}|tojson(sort_keys=true) }}", "sort_keys with keys that are not strings");
    expect_refused("{{ '%s' % 1 }}", "% on text");
    expect_refused("{{ f(*x) }}", "a call with *");
    expect_refused("{{ '\\N{DASH}' }}", "the escape \\N");
    expect_refused("{{ 0x1F }}", "not a number that is supported");
    expect_refused("{{ 9223372036854775807 + 1 }}", "beyond 64 bits");
    expect_refused("{{ 99999999999999999999 }}", "out of range");
    expect_refused("{{ [1]|tojson(indent=2, allow_nan=false) }}", "tojson: the argument 'allow_nan' is not supported");
    expect_refused("{{ strftime_now('%c') }}", "strftime_now: the format '%c' is not supported");
    expect_refused("{% for i in [1] %}{{ loop.changed(i) }}{% endfor %}", "the field of loop 'changed'");
}

/* Templates that would hang or take all memory. */
static void bounds_are_kept(void **state) {
    (void)state;
    expect_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "bytes of memory");
    expect_refused("{% set s = 'a' * 10000000 %}{% for i in range(10000) %}{{ 'b' in s }}{% endfor %}",
                   "too much work");
    expect_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested more than");
    expect_refused("{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('aaaaaaaaaaaaaaaa') }}", "more than");
    expect_refused("{{ 'a' * 999999999999 }}", "a string of more than");
    /* Upper case takes three times the bytes, behind the output so far. */
    expect_refused("{{ 'x' * 60000000 }}{% set upper = ('\u0390' * 3000000)|upper %}", "a string of more than");
    expect_refused("{{ ('a' * 100000000)|length }}{{ ('a' * 100000000)|length }}", "bytes of memory");
    expect_refused("{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}"
                   "{% endfor %}",
                   "bytes");
    expect_refused("{% for i in range(1000) %}{{ 'a' * 100000 }}{% endfor %}", "bytes of");
    expect_refused("{{ ('a' * 10000)|replace('', 'b' * 100000) }}", "a string of more than");
    expect_refused("{{ (range(99999)|list)|join('x' * 10000) }}", "a string of more than");
    expect_refused(
        "{% set ns = namespace(x=[]) %}{% for i in range(300) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "nested more than 200 deep");
    expect_refused("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x|tojson }}", "not JSON serializable");
    expect_refused("{{ range(0, 9223372036854775807) }}", "more than 100000 items");
    char deep[4096] = "{{ ";
    memset(deep + 3, '(', 1000);
    expect_refused(deep, "nested more than");
    memset(deep + 3, '-', 1000);
    strcpy(deep + 1003, "1 }}");
    expect_refused(deep, "nested more than");
    strcpy(deep, "{{ 1");
    for (int i = 0; i < 300; i++)
        strcat(deep, "+1");
    strcat(deep, " }}");
    expect_refused(deep, "nested more than");
    strcpy(deep, "");
    for (int i = 0; i < 100; i++)
        strcat(deep, "{% if 1 %}");
    expect_refused(deep, "nested more than");
}

/* What takes long is refused before it does: s and t are a million bytes that differ in the last. */
static void all_that_takes_time_is_work(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "s == t",
        "s < t",
        "d[t]",
        "t in d",
        "t in [s, s]",
        "s.rsplit(t)",
        "s.rfind(t)",
        "s.startswith(s)",
        "s.endswith(s)",
        "s.removeprefix(s)",
        "{t: 1} == {s: 1}",
        "[s] == [t]",
        "s is eq t",
        "s is in [t]",
        "[s, t]|sort(case_sensitive=true)",
        "d.get(t)",
        "s.strip('ab')",
        "s[-1]",
        "d|tojson(sort_keys=true)",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char template[512];
        snprintf(
            template, sizeof template,
            "{%% set s = 'a' * 1000000 %%}{%% set t = s[1:] ~ 'b' %%}{%% set d = {s: 1} %%}{%% for i in range(9999) "
            "%%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
            bodies[i]);
        expect_refused(template, strstr(bodies[i], "{t: 1}") ? "template: " : "too much work");
    }
}

/* Of templates that render fast, at least so much: some 20 ns a unit. */
static void work_is_counted(void **state) {
    (void)state;
    static const struct {
        const char *template;
        int64_t min;
    } cases[] = {
        {"{{ [1.1e-300, 2.5, 0.1]|string|length }}", 4000},
        {"{{ range(1000)|list|sum }}", 2000},
        {"{{ 1e300 % 3e-300 }}", 400},
        {"{{ ('a\x01' * 500)|tojson|length }}", 5000},
        {"{{ ['a\x01' * 500]|string|length }}", 5000},
        {"{{ ('a' * 1000)|upper|length }}", 1000},
        {"{{ ('a' * 1000) is lower }}", 1000},
        {"{{ (' ' * 1000)|trim }}", 1000},
        {"{{ ('a' * 1000)|replace('a', 'b')|length }}", 2000},
        {"{{ 'ab' in 'a' * 1000 }}", 1000},
        {"{{ strftime_now('%Y') }}", 400},
        {"{{ range(300)|list|tojson(indent=64)|length }}", 2000},
        {"{{ ('a ' * 500).split()|length }}", 1000},
    };
    json_t *none = json_object();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct jinja_output output = {0};
        if (render(cases[i].template, strlen(cases[i].template), none, &output) != STATUS_OK)
            fail_msg("%s: %s", cases[i].template, status_message());
        if (output.work < cases[i].min || output.work > 100 * cases[i].min)
            fail_msg("%s: %lld units of work", cases[i].template, (long long)output.work);
        jinja_output_free(&output);
    }
    json_decref(none);
}

static void generations_are_reported(void **state) {
    (void)state;
    static const char text[] = "a{% for x in ['b', 'cé'] %}<{% generation %}[{{ x }}]{% endgeneration %}>{% endfor %}"
                               "{% generation %}{% endgeneration %}";
    struct jinja_template *template;
    struct jinja_output output = {0};
    assert_int_equal(jinja_parse("template", text, strlen(text), &template), STATUS_OK);
    assert_true(jinja_has_generation(template));
    assert_false(jinja_uses_time(template));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(jinja_render(template, NULL, 0, 0, &output), STATUS_OK);
        assert_int_equal(output.text.count, strlen("a<[b]><[cé]>"));
        assert_int_equal(output.generations.count, 2);
        assert_int_equal(output.generations.items[0].from, 2);
        assert_int_equal(output.generations.items[0].to, 5);
        assert_int_equal(output.generations.items[1].from, 7);
        assert_int_equal(output.generations.items[1].to, 12);
    }
    jinja_output_free(&output);
    jinja_free(template);
}

static void time_is_the_given(void **state) {
    (void)state;
    static const char text[] = "{{ strftime_now('%d %b %Y %H:%M:%S %A %B %j %%') }}";
    struct jinja_template *template;
    struct jinja_output output = {0};
    assert_int_equal(jinja_parse("template", text, strlen(text), &template), STATUS_OK);
    assert_true(jinja_uses_time(template));
    assert_int_equal(jinja_render(template, NULL, 0, 1721997296, &output), STATUS_OK);
    assert_int_equal(vec_push(&output.text, '\0'), STATUS_OK);
    assert_string_equal(output.text.items, "26 Jul 2024 12:34:56 Friday July 208 %");
    jinja_output_free(&output);
    jinja_free(template);
}

static enum status render_once(void *payload) {
    static const char text[] = "{% macro m(x) %}{{ x }}{% endmacro %}{% for i in range(3) if i > 0 %}{{ m(i) }}"
                               "{{ {'a': [i]}|tojson }}{{ 'a,b'.split(',')|join('-')|upper }}{% generation %}x"
                               "{% endgeneration %}{% endfor %}{% set y %}{{ 'a'|indent }}{% endset %}{{ y[0:1] }}";
    json_t *variables = payload;
    struct jinja_output output = {0};
    enum status status = render(text, strlen(text), variables, &output);
    jinja_output_free(&output);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    json_t *variables = json_pack("{s:[i, s]}", "a", 1, "b");
    for (int sticky = 0; sticky < 2; sticky++)
        assert_true(fault_sweep(FAULT_ALLOCATE, sticky, render_once, variables) >= 10);
    json_decref(variables);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_those_of_jinja), cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(bounds_are_kept),          cmocka_unit_test(all_that_takes_time_is_work),
        cmocka_unit_test(work_is_counted),          cmocka_unit_test(generations_are_reported),
        cmocka_unit_test(time_is_the_given),        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
