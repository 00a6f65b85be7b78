/* utc.c: see utc.h. */
#include "base/utc.h"

#include <inttypes.h>
#include <stdio.h>

#define DAY_S UINT64_C(86400)
#define DAYS_OF_400_YEARS UINT64_C(146097)
#define DAYS_BEFORE_1970 UINT64_C(719468) /* since the first of March of the year 0 */

/* A year begins in March here, so that the day which not every year has is its last. Months from
 * there have 31, 30, 31, 30, 31 days and so on: 153 in five. */
static void date_of(uint64_t days, uint64_t *year, unsigned *month, unsigned *day)
{
    days += DAYS_BEFORE_1970;
    uint64_t of_era = days % DAYS_OF_400_YEARS;
    uint64_t years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint64_t of_year = of_era - (365 * years + years / 4 - years / 100);
    unsigned from_march = (unsigned)((5 * of_year + 2) / 153);
    *day = (unsigned)of_year - (153 * from_march + 2) / 5 + 1;
    *month = from_march < 10 ? from_march + 3 : from_march - 9;
    *year = years + days / DAYS_OF_400_YEARS * 400 + (*month <= 2 ? 1 : 0);
}

void fli_utc(char out[FLI_UTC_SIZE], uint64_t wall_ms)
{
    uint64_t s = wall_ms / 1000;
    uint64_t year;
    unsigned month;
    unsigned day;
    date_of(s / DAY_S, &year, &month, &day);
    (void)snprintf(out, FLI_UTC_SIZE, "%04" PRIu64 "-%02u-%02uT%02u:%02u:%02u.%03uZ", year, month,
                   day, (unsigned)(s % DAY_S / 3600), (unsigned)(s % 3600 / 60), (unsigned)(s % 60),
                   (unsigned)(wall_ms % 1000));
}
