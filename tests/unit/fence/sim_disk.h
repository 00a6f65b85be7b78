/* sim_disk.h: a disk in memory under SQLite, as the default VFS of the program. What is not synced
 * may be lost at a power cut, in part and in any order; names as well. Each call that changes or
 * syncs something is counted, and one of them can be the last before the power goes, or fail. One
 * thread. */
#ifndef TEST_SIM_DISK_H
#define TEST_SIM_DISK_H

#include <stdbool.h>
#include <stdint.h>

enum sim_fault { SIM_POWER, SIM_WRITE_ERROR, SIM_NO_ROOM, SIM_SYNC_ERROR };

void sim_disk_install(uint64_t seed);
void sim_disk_clear(void); /* all files are gone, no fault is set, and counting begins anew */
/* The call with this number, from 1, fails so. After SIM_POWER each call fails, until
 * sim_disk_restore_power(). A sync error comes at the first sync from there on, and so on. */
void sim_disk_fail(enum sim_fault fault, unsigned number);
bool sim_disk_failed(void);
unsigned sim_disk_calls(void);
/* The power goes now, if it has not gone yet, and comes again. */
void sim_disk_restore_power(void);

#endif
