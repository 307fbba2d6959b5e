/* redis_certificates.c: makes certificates with OpenSSL. */
#include "redis_certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "base/error.h"

#define YEAR_SECONDS (365L * 24 * 3600)

static FILE *open_file(const char *folder, const char *name, const char *kind, const char *mode)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s.%s", folder, name, kind);
    FILE *file = fopen(path, mode);
    ensure(file != NULL);
    return file;
}

static void add_extension(X509 *certificate, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;

    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    ensure(extension != NULL && X509_add_ext(certificate, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

void make_certificate(const char *folder, const char *name, const char *issuer,
                      const char *alternative)
{
    static long serial;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    EVP_PKEY *signing_key = key;
    X509 *certificate = X509_new();
    X509 *signer = certificate;

    ensure(key != NULL && certificate != NULL);
    if (issuer != NULL) {
        FILE *file = open_file(folder, issuer, "key", "r");
        signing_key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
        fclose(file);
        file = open_file(folder, issuer, "crt", "r");
        signer = PEM_read_X509(file, NULL, NULL, NULL);
        fclose(file);
        ensure(signing_key != NULL && signer != NULL);
    }
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -YEAR_SECONDS);
    X509_gmtime_adj(X509_getm_notAfter(certificate), YEAR_SECONDS);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(signer));
    X509_set_pubkey(certificate, key);
    add_extension(certificate, signer, NID_basic_constraints,
                  issuer == NULL ? "critical,CA:TRUE" : "CA:FALSE");
    if (alternative != NULL)
        add_extension(certificate, signer, NID_subject_alt_name, alternative);
    ensure(X509_sign(certificate, signing_key, EVP_sha256()) > 0);

    FILE *file = open_file(folder, name, "key", "w");
    ensure(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
    fclose(file);
    file = open_file(folder, name, "crt", "w");
    ensure(PEM_write_X509(file, certificate) == 1);
    fclose(file);
    if (issuer != NULL) {
        EVP_PKEY_free(signing_key);
        X509_free(signer);
    }
    EVP_PKEY_free(key);
    X509_free(certificate);
}
