/* backup_file.h: a backup as a file, read and verified as a whole. Blocks on the disk. */
#ifndef CONSENSUS_BACKUP_FILE_H
#define CONSENSUS_BACKUP_FILE_H

#include <stdio.h>

#include "consensus/backup_format.h"
#include "snapshot/file.h"
#include "machine/machine.h"

/* Reads the whole file and verifies the header, every checksum, every record of the state, and
 * whether they agree. 0; FL_ECORRUPT, FL_EVERSION, FL_EIO, FL_ENOMEM; errmsg is a sentence that
 * names the file and the place of the damage. On an error *ret_machine is NULL. */
int backup_file_read(const char *path, struct backup_header *ret, struct machine **ret_machine,
                     char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
