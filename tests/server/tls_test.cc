// The same server under TLS, with certificates that are made here.
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdio>
#include <fstream>

#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kEndlessOverTls =
    R"({"prompt": "Once upon a time", "max_tokens": -1, "ignore_eos": true, "stream": true, "temperature": 0})";

// A key and its self-signed certificate, in files.
struct Certificate {
  std::string name, certificate, key;

  explicit Certificate(const std::string& common_name) : name(common_name) {
    std::string folder = testing::TempDir() + "/tls_XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    certificate = folder + "/cert.pem";
    key = folder + "/key.pem";
    EVP_PKEY* pair = EVP_EC_gen("P-256");
    X509* made = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
    X509_gmtime_adj(X509_getm_notBefore(made), 0);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    X509_set_pubkey(made, pair);
    X509_NAME* subject = X509_get_subject_name(made);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(made, subject);
    X509_sign(made, pair, EVP_sha256());
    std::FILE* file = std::fopen(certificate.c_str(), "w");
    PEM_write_X509(file, made);
    std::fclose(file);
    file = std::fopen(key.c_str(), "w");
    PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    X509_free(made);
    EVP_PKEY_free(pair);
  }
  std::shared_ptr<const TlsContext> context() const {
    auto made = TlsContext::load(certificate, key);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *made;
  }
};

// A client whose bytes go through OpenSSL; the socket beneath is Client's.
class TlsClient {
 public:
  explicit TlsClient(int port, int version = TLS1_3_VERSION)
      : context_(SSL_CTX_new(TLS_client_method())), ssl_(SSL_new(context_)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    timeval limit{120, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    SSL_set_max_proto_version(ssl_, version);
    SSL_set_min_proto_version(ssl_, std::min(version, TLS1_2_VERSION));
    SSL_set_security_level(ssl_, 0);
    SSL_set_fd(ssl_, fd_);
    agreed_ = SSL_connect(ssl_) == 1;
    ERR_clear_error();
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ::close(fd_);
  }
  TlsClient(const TlsClient&) = delete;

  bool agreed() const { return agreed_; }
  std::string protocol() const { return SSL_get_version(ssl_); }
  std::string peer() const {
    X509* certificate = SSL_get1_peer_certificate(ssl_);
    char text[100] = "";
    if (certificate) X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text, sizeof(text));
    X509_free(certificate);
    return text;
  }
  void send(const std::string& bytes) {
    EXPECT_EQ(SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())), static_cast<int>(bytes.size()));
  }
  void post(const std::string& body) {
    send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body);
  }
  // All that comes until it holds `mark`, or the other side ends.
  std::string until(const std::string& mark) {
    std::string out;
    char bytes[16384];
    while (out.find(mark) == std::string::npos) {
      const int count = SSL_read(ssl_, bytes, sizeof(bytes));
      if (count <= 0) break;
      out.append(bytes, static_cast<size_t>(count));
    }
    ERR_clear_error();
    return out;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_;
  int fd_ = -1;
  bool agreed_ = false;
};

struct TlsServer : LiveServer {
  explicit TlsServer(const Certificate& certificate, HttpLimits http = {})
      : LiveServer({}, http, {}, certificate.context()) {}
};

TEST(Tls, RequestsStreamsAndConnectionsThatStay) {
  const Certificate certificate("millrace.test");
  TlsServer live(certificate);
  for (int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(live.port(), version);
    ASSERT_TRUE(client.agreed());
    EXPECT_EQ(client.protocol(), version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    EXPECT_EQ(client.peer(), "millrace.test");
    for (int i = 0; i < 3; ++i) {
      client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
      EXPECT_NE(client.until("}").find("\"ok\""), std::string::npos);
      client.post(R"({"prompt": "One day", "max_tokens": 20, "ignore_eos": true, "stream": true})");
      EXPECT_NE(client.until("0\r\n\r\n").find("[DONE]"), std::string::npos);
    }
    client.send(
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");  // two in
                                                                                                               // one
                                                                                                               // record
    EXPECT_NE(client.until("\"list\"").find("\"ok\""), std::string::npos);
    const std::string large = R"({"max_tokens": 1, "prompt": "One day)" + std::string(200000, ' ') + "\", \"n\": 999}";
    client.post(large);
    EXPECT_NE(client.until("}}").find("400 Bad"), std::string::npos);
  }
}

TEST(Tls, AReaderWhoLeavesFreesItsBlocks) {
  const Certificate certificate("a");
  TlsServer live(certificate);
  for (bool with_goodbye : {true, false}) {
    {
      TlsClient client(live.port());
      client.post(kEndlessOverTls);
      ASSERT_NE(client.until("data: ").find("200 OK"), std::string::npos);
      if (!with_goodbye) continue;
    }
    EXPECT_TRUE(
        comes_true([&] { return live.engine().stats().running == 0 && live.server->counts().connections == 0; }));
  }
  EXPECT_TRUE(comes_true([&] { return live.engine().stats().running == 0 && live.server->counts().connections == 0; }));
}

TEST(Tls, NonTlsConnectionsAreClosed) {
  const Certificate certificate("a");
  HttpLimits http;
  http.handshake_seconds = 0.1;
  TlsServer live(certificate, http);
  Client plain(live.port());
  plain.get("/health");
  EXPECT_NE(plain.head().status, 200);
  Client silent(live.port());
  EXPECT_FALSE(silent.receive());  // its timeout expired
  EXPECT_FALSE(TlsClient(live.port(), TLS1_1_VERSION).agreed());
  EXPECT_TRUE(comes_true([&] { return live.server->counts().connections == 0; }));
}

TEST(Tls, ANewCertificateAppliesToNewConnections) {
  const Certificate first("first"), second("second");
  TlsServer live(first);
  TlsClient stays(live.port());
  EXPECT_EQ(stays.peer(), "first");
  live.server->change(live.server->service().options(), {}, second.context());
  EXPECT_EQ(TlsClient(live.port()).peer(), "second");
  stays.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(stays.until("}").find("\"ok\""), std::string::npos);
}

TEST(Tls, DrainLetsAStreamFinish) {
  const Certificate certificate("a");
  TlsServer live(certificate);
  TlsClient client(live.port());
  client.post(R"({"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": true, "stream": true})");
  ASSERT_NE(client.until("data: ").find("200 OK"), std::string::npos);
  live.server->drain();
  EXPECT_NE(client.until("0\r\n\r\n").find("[DONE]"), std::string::npos);
  EXPECT_EQ(client.until("nothing more"), "");
  EXPECT_TRUE(comes_true([&] { return live.server->drained(); }));
}

TEST(Tls, MismatchedFilesAreRefused) {
  const Certificate first("first"), second("second");
  EXPECT_EQ(TlsContext::load("/nowhere", first.key).error().kind, ErrorKind::corrupt);
  EXPECT_EQ(TlsContext::load(first.certificate, "/nowhere").error().kind, ErrorKind::corrupt);
  EXPECT_FALSE(TlsContext::load(first.certificate, second.key).ok());
  EXPECT_FALSE(TlsContext::load(first.key, first.certificate).ok());
  std::ofstream(second.certificate) << "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  EXPECT_FALSE(TlsContext::load(second.certificate, second.key).ok());
}

}  // namespace
}  // namespace millrace
