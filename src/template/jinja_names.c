/* The names that templates may use, read off the tables by which they are found. */
#include "template/jinja_run.h"

const char *jinja_name(enum jinja_names names, size_t index) {
    if (names == JINJA_STRING_METHODS) return jinja_method_name(index, JINJA_STRING);
    if (names == JINJA_DICT_METHODS) return jinja_method_name(index, JINJA_DICT);
    if (names == JINJA_TESTS) return jinja_predicates[index].name;
    if (names == JINJA_FUNCTIONS) return jinja_functions[index].name;
    size_t texts = 0;
    while (jinja_text_filters[texts].name)
        texts++;
    return index < texts ? jinja_text_filters[index].name : jinja_list_filters[index - texts].name;
}
