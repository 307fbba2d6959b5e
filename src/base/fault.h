/* fault.h: named points at which a test build can be told to die or to wait.
 *
 * FAULT_POINT("ledger.before_commit") does nothing in a normal build. In a build with
 * -Dfault_points=true the environment variable DIBS_FAULT="ledger.before_commit:3:kill" ends the
 * process with SIGKILL the third time the point is passed; ":stop" raises SIGSTOP instead, so that
 * a test can look at the half-done state and continue it; ":hold" keeps this thread there while the
 * others go on, as long as the file is there that DIBS_FAULT_HOLD names.
 *
 * Threads: safe from any.
 */
#pragma once

#if defined(DIBS_FAULT_POINTS) && DIBS_FAULT_POINTS
void fault_point(const char *name);
#define FAULT_POINT(name) fault_point(name)
#else
#define FAULT_POINT(name) ((void)0)
#endif
