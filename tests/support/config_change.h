/* Configs of fixtures with one key changed, read as model_open reads them. */
#pragma once

#include "model/model.h"

/* By its family, which it must have. */
enum status config_read(const json_t *object, struct model_config *out);

/* One key of a good config is changed (or, where value is "", removed); what the message then says. */
struct config_change {
    const char *model_case, *key, *value, *message;
};
enum status config_read_changed(const struct config_change *change, struct model_config *out);
