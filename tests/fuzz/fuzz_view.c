/* fuzz_view.c: payloads of queries of any bytes. The first byte chooses, bit by bit, whether the
 * next record is read as a lock or as a session. */
#include "fuzz.h"

#include "machine/machine.h"
#include "machine/view.h"

static void check_slice(struct fli_slice s, const uint8_t *data, size_t size, size_t max)
{
    FLI_ASSERT(s.len <= max);
    FLI_ASSERT(s.len == 0 || (s.data >= data && s.data + s.len <= data + size));
}

static int read_lock(struct machine_page *p, const uint8_t *data, size_t size)
{
    struct machine_lock_view v;
    int rc = machine_page_next_lock(p, &v);
    if (rc == 1) {
        FLI_ASSERT(v.state >= MACHINE_LOCK_HELD && v.state <= MACHINE_LOCK_QUEUED);
        FLI_ASSERT(v.name.len >= 1 && (v.state == MACHINE_LOCK_HELD) == (v.token != 0));
        check_slice(v.name, data, size, FL_NAME_MAX);
        check_slice(v.owner, data, size, FL_OWNER_MAX);
        check_slice(v.label, data, size, FL_LABEL_MAX);
        check_slice(v.value, data, size, FL_VALUE_MAX);
    }
    return rc;
}

static int read_session(struct machine_page *p, const uint8_t *data, size_t size)
{
    struct machine_session_view v;
    int rc = machine_page_next_session(p, &v);
    if (rc == 1) {
        FLI_ASSERT(v.owner.len >= 1);
        check_slice(v.owner, data, size, FL_OWNER_MAX);
        check_slice(v.label, data, size, FL_LABEL_MAX);
        check_slice(v.lock, data, size, FL_NAME_MAX);
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct machine_page p;
    if (size < 1 || machine_page_open(data + 1, size - 1, &p) != 0) {
        return 0;
    }
    check_slice(p.cursor, data, size, size);
    /* Every record takes bytes, so an end comes, and it is the end for good. */
    int rc = 1;
    for (size_t i = 0; rc == 1; i++) {
        FLI_ASSERT(i <= size);
        rc = (data[0] >> i % 8 & 1) != 0 ? read_session(&p, data, size) : read_lock(&p, data, size);
        FLI_ASSERT(rc == 0 || rc == 1 || rc == FL_ECORRUPT);
    }
    FLI_ASSERT(read_session(&p, data, size) == rc && read_lock(&p, data, size) == rc);
    return 0;
}
