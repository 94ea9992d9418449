/* A text that two nodes have in common when they cost the same: of the same operator, attributes, shapes, dtypes and
 * rows, with operands that share bytes and are cold alike. The name under which a measurement is kept. */
#ifndef BALLAST_PROFILE_OPERATOR_KEY_H
#define BALLAST_PROFILE_OPERATOR_KEY_H

#include "base/mem.h"
#include "profile/operands.h"

/* Changes when the same text would stand for another measurement. */
enum { OPERATOR_KEY_VERSION = 1 };

/* "linear kn=1 0w:fp32[1,1024,768] 1c:fp32[768,2304] … > 4w:fp32[1,1024,2304]": the number of the storage, w for warm
 * or c for cold, and for columns of something "/" the elements of its rows. In `memory`; NULL when there is none. */
const char *operator_key(const struct operands *operands, struct scratch *memory);

#endif
