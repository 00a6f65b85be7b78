/* cluster_config.h: CLUSTER CONFIG: the limits of the cluster, as all its nodes have them. */
#ifndef SERVER_CLUSTER_CONFIG_H
#define SERVER_CLUSTER_CONFIG_H

#include "machine/machine.h"
#include "wire/request.h"

enum cluster_config_verb { CLUSTER_CONFIG_GET, CLUSTER_CONFIG_SET, CLUSTER_CONFIG_WRONG };

/* What is asked for. SET: *ret is the command of the machine. WRONG: *ret_why is a sentence. n: how
 * many arguments there are. */
enum cluster_config_verb cluster_config_read(const struct fli_request *q, unsigned n,
                                             struct machine_command *ret, const char **ret_why);

/* Each appends the whole answer: of GET, and of a SET that was applied. */
int cluster_config_render(struct fli_buf *b, int proto,
                          const struct machine_limits *l) FLI_MUST_USE;
int cluster_config_render_set(struct fli_buf *b, const struct machine_result *r) FLI_MUST_USE;

#endif
