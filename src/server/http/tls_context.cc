#include "server/http/tls_context.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

namespace millrace {
namespace {

// For TLS 1.2; all TLS 1.3 ciphers qualify.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!SHA1";
constexpr unsigned char kProtocol[] = "\x08http/1.1";

std::string last_error() {
  char text[256];
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof(text));
  ERR_clear_error();
  return text;
}

// A client that sends ALPN must offer this protocol; otherwise the handshake fails.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                    unsigned in_bytes, void*) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_bytes, kProtocol, sizeof(kProtocol) - 1, in, in_bytes) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

// OpenSSL's default would prompt for the key's password on the terminal.
int no_password(char*, int, int, void*) { return 0; }

}  // namespace

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<std::shared_ptr<const TlsContext>> TlsContext::load(const std::string& certificate, const std::string& key) {
  ERR_clear_error();
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  if (!context) return Error::resource("TLS: " + last_error());
  std::shared_ptr<const TlsContext> out(new TlsContext(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(context, kCiphers);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                   SSL_OP_IGNORE_UNEXPECTED_EOF);
  // Releasing the read and write buffers between records keeps idle connections small.
  SSL_CTX_set_mode(context,
                   SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);  // clients keep session tickets instead
  SSL_CTX_set_default_passwd_cb(context, no_password);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1)
    return Error::corrupt(fmt::format("{}: contains no PEM certificate: {}", certificate, last_error()));
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1)
    return Error::corrupt(
        fmt::format("{}: contains no PEM private key, or not the key of {}: {}", key, certificate, last_error()));
  if (SSL_CTX_check_private_key(context) != 1)
    return Error::corrupt(fmt::format("{}: is not the private key of {}: {}", key, certificate, last_error()));
  return out;
}

}  // namespace millrace
