/* daemon_files.h: the limit of open files. */
#ifndef CLI_DAEMON_FILES_H
#define CLI_DAEMON_FILES_H

/* Raises it as far as it may be raised: each client needs a file descriptor. */
void daemon_raise_open_files(void);

#endif
