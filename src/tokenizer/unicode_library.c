/* Properties that the `tokenizers` library takes from tables of its own, older or newer than utf8proc's: found by
 * asking it and utf8proc 2.8 for every code point. */
#include <utf8proc.h>

#include "tokenizer/unicode_class.h"

struct code_range {
    uint32_t first, last;
};

static bool is_within(const struct code_range *ranges, size_t count, uint32_t code) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= code;
}

/* No marks in these ranges: they are newer than the library's table. */
static const struct code_range newer_marks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x8D3},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},     {0xB55, 0xB55},
    {0xC04, 0xC3C},     {0xCF3, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},
    {0xECE, 0xECE},     {0x1715, 0x1715},   {0x180F, 0x180F},   {0x1ABF, 0x1ACE},   {0x1CF7, 0x1CF7},
    {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0xA8FF, 0xA8FF},   {0x10D24, 0x10F85}, {0x11070, 0x11074},
    {0x110C2, 0x110C2}, {0x11145, 0x11146}, {0x111C9, 0x111C9}, {0x111CE, 0x111CF}, {0x11241, 0x11241},
    {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x1182C, 0x11A99}, {0x11D31, 0x13455}, {0x16F4F, 0x16F4F},
    {0x16F7F, 0x16F87}, {0x16FE4, 0x16FF1}, {0x1CF00, 0x1CF46}, {0x1E08F, 0x1E4EF},
};
static const struct code_range newer_punctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0xA76},     {0xC77, 0xC84},     {0x1B7D, 0x1B7E},
    {0x2E43, 0x2E5D},   {0x10EAD, 0x10F89}, {0x1144B, 0x1145D}, {0x11660, 0x116B9},
    {0x1183B, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16FE2}, {0x1E95E, 0x1E95F},
};

bool unicode_is_mark(uint32_t code) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                category == UTF8PROC_CATEGORY_ME || code == 0x1CF2 || code == 0x1CF3;
    return mark && !is_within(newer_marks, sizeof newer_marks / sizeof *newer_marks, code);
}

static bool is_ascii_punctuation(uint32_t code) {
    return code > 0x20 && code < 0x7F && !(code >= '0' && code <= '9') && !(code >= 'A' && code <= 'Z') &&
           !(code >= 'a' && code <= 'z');
}

bool unicode_is_punctuation(uint32_t code) {
    if (code < 0x80) return is_ascii_punctuation(code);
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    bool punctuation = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
    if (code == 0x166D || code == 0x111C9) return true;
    return punctuation && !is_within(newer_punctuation, sizeof newer_punctuation / sizeof *newer_punctuation, code);
}

uint32_t unicode_to_lower(uint32_t code) {
    /* Of Unicode 16 and 17. */
    static const struct {
        uint32_t first, last;
        int32_t offset;
    } newer[] = {
        {0x1C89, 0x1C89, 1},      {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
        {0xA7CC, 0xA7CC, 1},      {0xA7CE, 0xA7CE, 1},
        {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
        {0xA7DA, 0xA7DA, 1},      {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
        {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B},
    };
    if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 0x20 : code;
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        if (code >= newer[i].first && code <= newer[i].last) return (uint32_t)((int32_t)code + newer[i].offset);
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}
