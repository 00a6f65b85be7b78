/* shim.h: what the files of the shim share. shim.c has writes and the journal, shim_read.c what
 * reads, shim_calls.c all other calls. */
#ifndef TORTURE_SHIM_H
#define TORTURE_SHIM_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The slots of the control file. This is the one list: tests/lib/shim.py and
 * jepsen/src/fencelock/jepsen/shim.clj read it from here. So an enumerator has a number or the
 * next one, and no other expression. */
enum slot {
    SLOT_LIE,          /* syncs are answered and do nothing */
    SLOT_SLOW_US,      /* how long a sync takes longer */
    SLOT_SYNC_ERRNO,   /* what each sync fails with */
    SLOT_WRITE_ERRNO,  /* what each write to a file, and each making of one, fails with */
    SLOT_FULL,         /* nothing can be made or made longer for want of space */
    SLOT_WALL_NS,      /* how far the wall clock is off */
    SLOT_RING,         /* an io_uring may be had */
    SLOT_SHORT,        /* writes that can be done in part are */
    SLOT_READ_SLOW_US, /* how long a read of a file takes longer */
    SLOT_LOOP_READS,   /* such reads of the process's first thread so far */
    SLOT_PACE,       /* which of two paces of the monotonic clock goes; the other may be written */
    SLOT_PACES = 16, /* of each: ppm faster, since when, how far ahead then */
    SLOT_KINDS = 32, /* of each kind: calls, the call that fails, its errno, calls that did fail */
    SLOTS = 128
};

/* A file made, renamed or removed is KIND_NAME, its size changed KIND_SIZE, a directory listed
 * KIND_LIST; threads, pipes and the like are KIND_MAKE. */
enum kind {
    KIND_ALLOC,
    KIND_WRITE,
    KIND_SYNC,
    KIND_NAME,
    KIND_ACCEPT,
    KIND_SIZE,
    KIND_OPEN,
    KIND_READ,
    KIND_RING,
    KIND_MAKE,
    KIND_STAT,
    KIND_LIST,
    KIND_FORK,
    KINDS
};

_Static_assert(SLOT_PACE < SLOT_PACES && SLOT_PACES + 6 <= SLOT_KINDS &&
                   SLOT_KINDS + 4 * KINDS <= SLOTS,
               "all slots have their places");

/* As the errno of a call that fails: it does part of what it shall. */
#define SHORT_WRITE 10000
/* Likewise: the process is killed when it is about to make that call. */
#define KILLED_BEFORE 10001
/* Of a write: the process is killed when it has made it, and nothing of it is synced. */
#define KILLED_AFTER 10002

/* A pointer to an object is not one to a function in C; POSIX says that this works. */
#define REAL(ret, name, ...)                                                                       \
    static ret (*real)(__VA_ARGS__);                                                               \
    do {                                                                                           \
        if (real == NULL) {                                                                        \
            void *found = dlsym(RTLD_NEXT, name);                                                  \
            memcpy((void *)&real, &found, sizeof found);                                           \
        }                                                                                          \
    } while (0)

extern _Atomic int64_t *shim_slots;    /* NULL: not in use */
extern int shim_undo_fd;               /* of the journal; -1: none */
extern pthread_mutex_t shim_undo_lock; /* of the journal */

int64_t shim_slot(int which);

/* Counts a call; its errno when it is the one that fails, otherwise 0. */
int shim_fails(enum kind kind);

/* Ends the process at once, as a kill would. */
_Noreturn void shim_die(void);

/* Sets errno; -1. */
int shim_refuse(int error);

void shim_nap(int64_t us);

/* Whether a descriptor, or what a path names, is disturbed. */
bool shim_is_ours(int fd);
bool shim_names_ours(int dirfd, const char *path);

/* Whether a descriptor is of something below the directory that is disturbed, or of that itself. */
bool shim_is_below(int fd);

/* This descriptor is no file of ours any more. */
void shim_forget(int fd);

#endif
