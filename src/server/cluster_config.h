/* cluster_config.h: CLUSTER CONFIG: the limits of the cluster, which all nodes share, and the
 * settings that an operator made for all nodes. */
#ifndef SERVER_CLUSTER_CONFIG_H
#define SERVER_CLUSTER_CONFIG_H

#include "machine/machine.h"
#include "wire/request.h"

#define CLUSTER_CONFIG_WHY_MAX 256u

enum cluster_config_verb { CLUSTER_CONFIG_GET, CLUSTER_CONFIG_SET, CLUSTER_CONFIG_WRONG };

/* Reads the request. SET: *ret is the machine's command. WRONG: `why` is a sentence. n: the number
 * of arguments. */
enum cluster_config_verb cluster_config_read(const struct fli_request *q, unsigned n,
                                             struct machine_command *ret,
                                             char why[CLUSTER_CONFIG_WHY_MAX]);

/* Each appends the whole answer: to GET, and to a SET that was applied. */
int cluster_config_render(struct fli_buf *b, int proto, const struct machine *m) FLI_MUST_USE;
int cluster_config_render_set(struct fli_buf *b, const struct machine_result *r) FLI_MUST_USE;

#endif
