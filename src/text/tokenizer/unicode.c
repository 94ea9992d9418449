#include "text/tokenizer/pattern.h"

#include <utf8proc.h>

/* Found by asking, for every code point, Oniguruma's \p{..} in `tokenizers` 0.23 and PCRE2 10.42's. */
const struct unicode_addition unicode_additions[] = {
    {0x897, 0x897, "Mn"},     {0xCF3, 0xCF3, "Mc"},     {0xECE, 0xECE, "Mn"},     {0x1B4E, 0x1B4F, "Po"},
    {0x1B7F, 0x1B7F, "Po"},   {0x1C89, 0x1C89, "Lu"},   {0x1C8A, 0x1C8A, "Ll"},   {0x2427, 0x2429, "So"},
    {0x2FFC, 0x2FFF, "So"},   {0x31E4, 0x31E5, "So"},   {0x31EF, 0x31EF, "So"},   {0xA7CB, 0xA7CC, "Lu"},
    {0xA7CD, 0xA7CD, "Ll"},   {0xA7DA, 0xA7DA, "Lu"},   {0xA7DB, 0xA7DB, "Ll"},   {0xA7DC, 0xA7DC, "Lu"},
    {0x105C0, 0x105F3, "Lo"}, {0x10D40, 0x10D49, "Nd"}, {0x10D4A, 0x10D4D, "Lo"}, {0x10D4E, 0x10D4E, "Lm"},
    {0x10D4F, 0x10D4F, "Lo"}, {0x10D50, 0x10D65, "Lu"}, {0x10D69, 0x10D6D, "Mn"}, {0x10D6E, 0x10D6E, "Pd"},
    {0x10D6F, 0x10D6F, "Lm"}, {0x10D70, 0x10D85, "Ll"}, {0x10D8E, 0x10D8F, "Sm"}, {0x10EC2, 0x10EC4, "Lo"},
    {0x10EFC, 0x10EFF, "Mn"}, {0x1123F, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"},
    {0x1138B, 0x1138B, "Lo"}, {0x1138E, 0x1138E, "Lo"}, {0x11390, 0x113B5, "Lo"}, {0x113B7, 0x113B7, "Lo"},
    {0x113B8, 0x113BA, "Mc"}, {0x113BB, 0x113C0, "Mn"}, {0x113C2, 0x113C2, "Mc"}, {0x113C5, 0x113C5, "Mc"},
    {0x113C7, 0x113CA, "Mc"}, {0x113CC, 0x113CD, "Mc"}, {0x113CE, 0x113CE, "Mn"}, {0x113CF, 0x113CF, "Mc"},
    {0x113D0, 0x113D0, "Mn"}, {0x113D1, 0x113D1, "Lo"}, {0x113D2, 0x113D2, "Mn"}, {0x113D3, 0x113D3, "Lo"},
    {0x113D4, 0x113D5, "Po"}, {0x113D7, 0x113D8, "Po"}, {0x113E1, 0x113E2, "Mn"}, {0x116D0, 0x116E3, "Nd"},
    {0x1171E, 0x1171E, "Mc"}, {0x11B00, 0x11B09, "Po"}, {0x11BC0, 0x11BE0, "Lo"}, {0x11BE1, 0x11BE1, "Po"},
    {0x11BF0, 0x11BF9, "Nd"}, {0x11F00, 0x11F01, "Mn"}, {0x11F02, 0x11F02, "Lo"}, {0x11F03, 0x11F03, "Mc"},
    {0x11F04, 0x11F10, "Lo"}, {0x11F12, 0x11F33, "Lo"}, {0x11F34, 0x11F35, "Mc"}, {0x11F36, 0x11F3A, "Mn"},
    {0x11F3E, 0x11F3F, "Mc"}, {0x11F40, 0x11F40, "Mn"}, {0x11F41, 0x11F41, "Mc"}, {0x11F42, 0x11F42, "Mn"},
    {0x11F43, 0x11F4F, "Po"}, {0x11F50, 0x11F59, "Nd"}, {0x11F5A, 0x11F5A, "Mn"}, {0x1342F, 0x1342F, "Lo"},
    {0x13440, 0x13440, "Mn"}, {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"}, {0x13460, 0x143FA, "Lo"},
    {0x16100, 0x1611D, "Lo"}, {0x1611E, 0x16129, "Mn"}, {0x1612A, 0x1612C, "Mc"}, {0x1612D, 0x1612F, "Mn"},
    {0x16130, 0x16139, "Nd"}, {0x16D40, 0x16D42, "Lm"}, {0x16D43, 0x16D6A, "Lo"}, {0x16D6B, 0x16D6C, "Lm"},
    {0x16D6D, 0x16D6F, "Po"}, {0x16D70, 0x16D79, "Nd"}, {0x18CFF, 0x18CFF, "Lo"}, {0x1B132, 0x1B132, "Lo"},
    {0x1B155, 0x1B155, "Lo"}, {0x1CC00, 0x1CCEF, "So"}, {0x1CCF0, 0x1CCF9, "Nd"}, {0x1CD00, 0x1CEB3, "So"},
    {0x1D2C0, 0x1D2D3, "No"}, {0x1DF25, 0x1DF2A, "Ll"}, {0x1E030, 0x1E06D, "Lm"}, {0x1E08F, 0x1E08F, "Mn"},
    {0x1E4D0, 0x1E4EA, "Lo"}, {0x1E4EB, 0x1E4EB, "Lm"}, {0x1E4EC, 0x1E4EF, "Mn"}, {0x1E4F0, 0x1E4F9, "Nd"},
    {0x1E5D0, 0x1E5ED, "Lo"}, {0x1E5EE, 0x1E5EF, "Mn"}, {0x1E5F0, 0x1E5F0, "Lo"}, {0x1E5F1, 0x1E5FA, "Nd"},
    {0x1E5FF, 0x1E5FF, "Po"}, {0x1F6DC, 0x1F6DC, "So"}, {0x1F774, 0x1F776, "So"}, {0x1F77B, 0x1F77F, "So"},
    {0x1F7D9, 0x1F7D9, "So"}, {0x1F8B2, 0x1F8BB, "So"}, {0x1F8C0, 0x1F8C1, "So"}, {0x1FA75, 0x1FA77, "So"},
    {0x1FA87, 0x1FA89, "So"}, {0x1FA8F, 0x1FA8F, "So"}, {0x1FAAD, 0x1FAAF, "So"}, {0x1FABB, 0x1FABF, "So"},
    {0x1FAC6, 0x1FAC6, "So"}, {0x1FACE, 0x1FACF, "So"}, {0x1FADA, 0x1FADC, "So"}, {0x1FADF, 0x1FADF, "So"},
    {0x1FAE8, 0x1FAE9, "So"}, {0x1FAF7, 0x1FAF8, "So"}, {0x1FBCB, 0x1FBEF, "So"}, {0x2B739, 0x2B739, "Lo"},
    {0x2EBF0, 0x2EE5D, "Lo"}, {0x31350, 0x323AF, "Lo"},
};
const size_t unicode_addition_count = sizeof unicode_additions / sizeof *unicode_additions;

/* Compares a character with a range, whose struct begins with its first and last one. */
static int compare_range(const void *code, const void *range) {
    uint32_t own = *(const uint32_t *)code;
    const uint32_t *bounds = range;
    return own < bounds[0] ? -1 : own > bounds[1];
}

static const struct unicode_addition *addition_find(uint32_t code) {
    return bsearch(&code, unicode_additions, unicode_addition_count, sizeof *unicode_additions, compare_range);
}

bool unicode_is_within(const struct unicode_range *ranges, size_t count, uint32_t code) {
    return bsearch(&code, ranges, count, sizeof *ranges, compare_range) != NULL;
}

bool unicode_is_nonspacing(uint32_t code) {
    const struct unicode_addition *addition = addition_find(code);
    if (addition) return strcmp(addition->category, "Mn") == 0;
    return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_MN;
}

bool unicode_is_space(uint32_t code) {
    return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
           code == 0x3000;
}

/* The circled and squared letters are symbols, but Alphabetic. */
static bool is_enclosed_letter(uint32_t code) {
    return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
           (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

bool unicode_is_word(uint32_t code) {
    const struct unicode_addition *addition = addition_find(code);
    if (addition) {
        const char *category = addition->category;
        return category[0] == 'L' || category[0] == 'M' || (category[0] == 'N' && category[1] == 'd');
    }
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return is_enclosed_letter(code) || code == 0x200C || code == 0x200D;
    }
}

/* Properties that the `tokenizers` library takes from tables of its own, older or newer than utf8proc's: found by
 * asking it and utf8proc 2.8 for every code point. */

/* No marks in these ranges: they are newer than the library's table. */
static const struct unicode_range newer_marks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x8D3},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},     {0xB55, 0xB55},
    {0xC04, 0xC3C},     {0xCF3, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},
    {0xECE, 0xECE},     {0x1715, 0x1715},   {0x180F, 0x180F},   {0x1ABF, 0x1ACE},   {0x1CF7, 0x1CF7},
    {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0xA8FF, 0xA8FF},   {0x10D24, 0x10F85}, {0x11070, 0x11074},
    {0x110C2, 0x110C2}, {0x11145, 0x11146}, {0x111C9, 0x111C9}, {0x111CE, 0x111CF}, {0x11241, 0x11241},
    {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x1182C, 0x11A99}, {0x11D31, 0x13455}, {0x16F4F, 0x16F4F},
    {0x16F7F, 0x16F87}, {0x16FE4, 0x16FF1}, {0x1CF00, 0x1CF46}, {0x1E08F, 0x1E4EF},
};
static const struct unicode_range newer_punctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0xA76},     {0xC77, 0xC84},     {0x1B7D, 0x1B7E},
    {0x2E43, 0x2E5D},   {0x10EAD, 0x10F89}, {0x1144B, 0x1145D}, {0x11660, 0x116B9},
    {0x1183B, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16FE2}, {0x1E95E, 0x1E95F},
};

bool unicode_is_mark(uint32_t code) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                category == UTF8PROC_CATEGORY_ME || code == 0x1CF2 || code == 0x1CF3;
    return mark && !unicode_is_within(newer_marks, sizeof newer_marks / sizeof *newer_marks, code);
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
    return punctuation &&
           !unicode_is_within(newer_punctuation, sizeof newer_punctuation / sizeof *newer_punctuation, code);
}

uint32_t unicode_to_lower(uint32_t code) {
    /* Characters of Unicode 16 and 17. */
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
