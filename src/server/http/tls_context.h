// TlsContext: a certificate and its key, ready for connections. TLS 1.2 and up, forward secrecy and authenticated
// ciphers only; connections keep the context that they began with when files are read again. Thread-safe once made.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

struct ssl_ctx_st;

namespace millrace {

class TlsContext {
 public:
  // PEM files; the certificate's may hold its chain. Errors (user): cannot be read, or do not belong to each other.
  static Result<std::shared_ptr<const TlsContext>> load(const std::string& certificate, const std::string& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
};

}  // namespace millrace
