#include "tokenizer/rank_set.h"

#include "base/mem.h"

enum status rank_set_create(struct rank_set *set, size_t bound) {
    *set = (struct rank_set){0};
    for (size_t words = bound; set->level_count == 0 || words > 1;) {
        words = words / 64 + 1;
        uint64_t **level = &set->levels[set->level_count];
        *level = mem_array(words, sizeof **level);
        if (!*level) return rank_set_free(set), STATUS_FAILED;
        set->level_count++;
    }
    return STATUS_OK;
}

void rank_set_free(struct rank_set *set) {
    for (size_t i = 0; i < set->level_count; i++)
        mem_free(set->levels[i]);
    *set = (struct rank_set){0};
}
