/* fuzz.h: what a fuzz target and its two drivers (libFuzzer, standalone.c) agree on.
 *
 * A target must return 0, keep nothing between calls, and abort (FLI_ASSERT) when something
 * is wrong. */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

__attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
