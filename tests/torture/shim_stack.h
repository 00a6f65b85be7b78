/* shim_stack.h: for shim.c: who made the call that fails. For whoever sets FENCELOCK_SHIM_STACK. */
#ifndef TORTURE_SHIM_STACK_H
#define TORTURE_SHIM_STACK_H

/* Appends the stack of the caller to a file beside the control file, "....stack", when
 * FENCELOCK_SHIM_STACK is set. */
void shim_stack_put(void);

#endif
