/* shim_stack.h: for shim.c: who made the call that fails. For whoever sets FENCELOCK_SHIM_STACK. */
#ifndef TORTURE_SHIM_STACK_H
#define TORTURE_SHIM_STACK_H

/* control: path of the control file. Nothing is written unless FENCELOCK_SHIM_STACK is set. */
void shim_stack_init(const char *control);

/* Appends the stack of the caller to "<control>.stack". */
void shim_stack_put(void);

#endif
