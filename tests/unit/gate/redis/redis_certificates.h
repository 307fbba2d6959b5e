/* redis_certificates.h: an authority of one's own and what it signs, for servers that speak TLS.
 *
 * Threads: everything belongs to the test's thread.
 */
#pragma once

/* Writes NAME.crt and NAME.key into a folder. `issuer` is the name of one written before, or NULL:
 * it signs itself, as an authority does. `alternative` is "DNS:…" or "IP:…". */
void make_certificate(const char *folder, const char *name, const char *issuer,
                      const char *alternative);
