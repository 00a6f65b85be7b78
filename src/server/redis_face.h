/* redis_face.h: the options of the Redis face, made ready for dispatch. */
#ifndef SERVER_REDIS_FACE_H
#define SERVER_REDIS_FACE_H

#include "server/config.h"
#include "server/dispatch.h"

/* Reads the file of aliases. `ret->scripts` is NULL when the face is switched off. 0; FL_EINVAL,
 * with a sentence in errmsg; FL_ENOMEM. */
int redis_face_open(const struct config *config, struct dispatch_face *ret, char *errmsg,
                    size_t errmsg_size) FLI_MUST_USE;
void redis_face_close(struct dispatch_face *f);

#endif
