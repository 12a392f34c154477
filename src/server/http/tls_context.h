// TlsContext: a certificate and its key, loaded for use by connections. TLS 1.2 and later, only ciphers with forward
// secrecy and authenticated encryption. A connection keeps its context when the files are reloaded. Thread-safe after
// load().
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

struct ssl_ctx_st;

namespace millrace {

class TlsContext {
 public:
  // PEM files; the certificate file may contain its chain. Errors (user): unreadable, or key and certificate do not
  // match.
  static Result<std::shared_ptr<const TlsContext>> load(const std::string& certificate, const std::string& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
};

}  // namespace millrace
