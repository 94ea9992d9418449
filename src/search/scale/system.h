/* Training systems by name: how each works, as its code and documents of the time say. */
#pragma once

#include "search/scale/training.h"

/* The system whose name is in the text ("torchtitan FSDP2"); the first of the list that is. NULL: none is. */
const struct training_system *training_system_find(const char *text);
