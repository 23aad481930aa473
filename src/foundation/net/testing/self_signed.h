// SelfSignedCertificate: a fresh key and certificate for 127.0.0.1 and localhost, as PEM files.
#pragma once

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/result.h"

namespace yard {

// The files are removed with it.
class SelfSignedCertificate {
 public:
  explicit SelfSignedCertificate(const std::string& folder) {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"),
                                                                  EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
    YARD_CHECK(key && certificate);
    constexpr long kDaySeconds = 86'400;
    X509_set_version(certificate.get(), 2);  // 2 stands for version 3
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDaySeconds);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kDaySeconds);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME* name = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(certificate.get(), name);
    X509_EXTENSION* names =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    X509_add_ext(certificate.get(), names, -1);
    X509_EXTENSION_free(names);
    YARD_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
    certificate_path_ =
        write(folder, [&](std::FILE* file) { return PEM_write_X509(file, certificate.get()); });
    key_path_ = write(folder, [&](std::FILE* file) {
      return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }
  ~SelfSignedCertificate() {
    ::unlink(certificate_path_.c_str());
    ::unlink(key_path_.c_str());
  }
  SelfSignedCertificate(const SelfSignedCertificate&) = delete;
  SelfSignedCertificate& operator=(const SelfSignedCertificate&) = delete;

  const std::string& certificate_path() const { return certificate_path_; }
  const std::string& key_path() const { return key_path_; }

 private:
  template <typename Writer>
  static std::string write(const std::string& folder, Writer&& writer) {
    std::string path = folder + "self_signed_XXXXXX";
    std::FILE* file = ::fdopen(::mkstemp(path.data()), "w");
    YARD_CHECK(file != nullptr && writer(file) == 1);
    YARD_CHECK(std::fclose(file) == 0);
    return path;
  }

  std::string certificate_path_;
  std::string key_path_;
};

}  // namespace yard
