/* proxy.h: a process between the designs and their database, as far away as a run wants it.
 *
 * Threads: it is the whole of its process.
 */
#pragma once

/* Passes on everything between the port and the target ("host:port" with a number), and holds each
 * answer back for so long. Does not come back. */
int lab_proxy_run(int port, const char *target, int delay_ms);
