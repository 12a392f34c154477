// Requests that two readers of the same bytes interpret differently were accepted: a body with an unknown
// Transfer-Encoding was read as the next request, and two Host headers or none at all were allowed. The fuzz target for
// requests begins at the body, after the HTTP head.
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kHidden = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";

// The status of the first answer; nothing may follow it, and the connection is closed.
int status_alone(int port, const std::string& bytes) {
  Client client(port);
  client.send(bytes);
  const Response answer = client.response();
  EXPECT_TRUE(Json::parse(answer.body, nullptr, false).is_object()) << bytes << answer.body;
  EXPECT_EQ(client.head().status, 0) << "another request was found in:\n" << bytes;
  return answer.status;
}

std::string with(const std::string& lines, const std::string& body = kHidden, const char* version = "1.1") {
  return std::string("POST /v1/completions HTTP/") + version + "\r\n" + lines + "\r\n" + body;
}

TEST(RequestSmuggling, BodiesOfUnknownEncodingCloseTheConnection) {
  LiveServer live;
  const std::string host = "Host: localhost\r\n";
  for (const char* encoding :
       {"gzip", "identity", "xchunked", "chunked, identity", "gzip, chunked", "chunked, chunked", ""})
    EXPECT_EQ(status_alone(live.port(), with(host + "Transfer-Encoding: " + encoding + "\r\n")), 501) << encoding;
  EXPECT_EQ(status_alone(live.port(), with(host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n")),
            501);
  EXPECT_EQ(status_alone(live.port(), with(host + "transfer-encoding:\tGZIP \r\n")), 501);
}

TEST(RequestSmuggling, LengthsThatDisagreeAreRefused) {
  LiveServer live;
  const std::string host = "Host: localhost\r\n";
  EXPECT_EQ(status_alone(live.port(),
                         with(host + "Content-Length: 2\r\nContent-Length: 50\r\n", std::string("{}") + kHidden)),
            400);
  EXPECT_EQ(status_alone(live.port(), with(host + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
                                           std::string("0\r\n\r\n") + kHidden)),
            400);
  EXPECT_EQ(status_alone(live.port(), with(host + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                                           std::string("0\r\n\r\n") + kHidden)),
            400);
  for (const char* length : {"+2", "0x2", "2, 2", "-1", "2 2", "99999999999999999999", ""})
    EXPECT_EQ(status_alone(live.port(), with(host + "Content-Length: " + length + "\r\n", std::string("{}") + kHidden)),
              400)
        << length;
  EXPECT_EQ(
      status_alone(live.port(), with("Transfer-Encoding: chunked\r\n", std::string("0\r\n\r\n") + kHidden, "1.0")),
      400);
}

TEST(RequestSmuggling, FoldedHeaderLinesAreRefused) {
  LiveServer live;
  EXPECT_EQ(status_alone(live.port(), "GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n c\r\n\r\n"), 400);
  EXPECT_EQ(status_alone(live.port(), with("Host: localhost\r\nTransfer-Encoding:\r\n chunked\r\n",
                                           std::string("0\r\n\r\n") + kHidden)),
            400);
  EXPECT_EQ(status_alone(live.port(), with("Host: localhost\r\nContent-Length : 2\r\n", std::string("{}") + kHidden)),
            400);
  EXPECT_EQ(status_alone(live.port(), "GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: b\nX-B: c\r\n\r\n"), 400);
}

TEST(RequestSmuggling, ARequestNeedsExactlyOneHost) {
  LiveServer live;
  EXPECT_EQ(status_alone(live.port(), "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"), 400);
  EXPECT_EQ(status_alone(live.port(), "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(status_alone(live.port(), "GET /v1/models HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_alone(live.port(), "GET /v1/models HTTP/1.1\r\nHost: a b\r\n\r\n"), 400);
  EXPECT_EQ(status_alone(live.port(), "GET /v1/models HTTP/1.1\r\nHost: localhost/\r\n\r\n"), 400);
  Client old(live.port());
  old.send("GET /v1/models HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.response().status, 200);
}

TEST(RequestSmuggling, ValidRequestsAreStillAccepted) {
  LiveServer live;
  Client client(live.port());
  const std::string body = R"({"prompt": "One", "max_tokens": 1})";
  client.send("\r\n\r\nPOST /v1/completions HTTP/1.1\r\nHost: [::1]:8080\r\nTransfer-Encoding: Chunked\r\n\r\n" +
              std::string("22\r\n") + body + "\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.response().status, 200);
  EXPECT_EQ(client.response().json()["status"], "ok");  // sent along with the first
  for (const char c : std::string("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")) client.send(std::string(1, c));
  EXPECT_EQ(client.response().status, 200);
  std::string row;
  for (int i = 0; i < 400; ++i) row += "GET /no HTTP/1.1\r\nHost: a\r\n\r\n";
  client.send(row);
  for (int i = 0; i < 400; ++i) ASSERT_EQ(client.response().status, 404) << i;
}

}  // namespace
}  // namespace millrace
