#include "session/session.h"

enum status session_open(const char *model_folder, const struct plan_options *options, const struct recipe *decided,
                         struct session *out) {
    struct model *model;
    TRY(options->outline ? model_open_outline(model_folder, &model) : model_open(model_folder, &model));
    return session_open_model(model, options, decided, out);
}

static enum status find_comm(struct session *session) {
    session->owns_comm = !session->comm;
    return session->owns_comm ? comm_open(&(struct comm_settings){.engine = "self"}, &session->comm) : STATUS_OK;
}

enum status session_open_model(struct model *model, const struct plan_options *options, const struct recipe *decided,
                               struct session *out) {
    struct session session = {.model = model, .comm = options->comm};
    enum status status = machine_open(options, decided, &session.machine);
    if (status == STATUS_OK) status = find_comm(&session);
    if (status == STATUS_OK)
        *out = session;
    else
        session_close(&session);
    return status;
}

void session_close(struct session *session) {
    model_free(session->model);
    if (session->owns_comm) (void)comm_close(session->comm);
    *session = (struct session){.model = NULL};
}

enum status session_set_trained(struct session *session, struct recipe *recipe) {
    TRY(model_set_adapter(session->model, recipe->lora, recipe->seed));
    const struct adapter *adapter = &session->model->config.adapter;
    if (adapter->rank > 0) adapter_print(adapter, recipe->lora);
    return model_set_frozen(session->model, recipe->freeze);
}
