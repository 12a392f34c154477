#include "server/http/http_head.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

int status(const std::string& lines, const char* version = "1.1") {
  const std::string head = std::string("GET / HTTP/") + version + "\r\n" + lines + "\r\n";
  EXPECT_EQ(head_bytes(head), head.size());
  const auto fault = head_fault(head);
  return fault ? fault->status : 200;
}

TEST(HttpHead, EndsWithAnEmptyLine) {
  EXPECT_EQ(head_bytes("GET / HTTP/1.1\r\n\r\nrest"), 18u);
  EXPECT_EQ(head_bytes("GET / HTTP/1.1\r\n\r"), std::string_view::npos);
  EXPECT_EQ(skipped_line_ends("\r\n\r\nG"), 4u);
  EXPECT_EQ(skipped_line_ends("\r\n"), 2u);
  EXPECT_EQ(skipped_line_ends(""), 0u);
}

TEST(HttpHead, RequiresExactlyOneHost) {
  EXPECT_EQ(status("Host: a\r\n"), 200);
  EXPECT_EQ(status("hOsT:[::1]:80\r\n"), 200);
  EXPECT_EQ(status("Host:\r\n"), 200);
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(status("", "1.0"), 200);
  EXPECT_EQ(status("Host: a\r\nHOST: a\r\n"), 400);
  for (const char* host : {"a b", "a/b", "a,b", "a@b", "a\\b", "a?b", "\x80"})
    EXPECT_EQ(status("Host: " + std::string(host) + "\r\n"), 400) << host;
}

TEST(HttpHead, RejectsAmbiguousBodyLength) {
  const std::string host = "Host: a\r\n";
  EXPECT_EQ(status(host + "Content-Length: 12\r\n"), 200);
  EXPECT_EQ(status(host + "Transfer-Encoding: chunked\r\n"), 200);
  EXPECT_EQ(status(host + "Transfer-Encoding: gzip\r\n"), 501);
  EXPECT_EQ(status(host + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), 400);
  EXPECT_EQ(status(host + "Content-Length: 1\r\ncontent-length: 1\r\n"), 400);
  EXPECT_EQ(status(host + "Transfer-Encoding: chunked\r\n", "1.0"), 400);
}

TEST(HttpHead, RejectsMalformedLines) {
  EXPECT_EQ(status("Host: a\r\nA: b\r\n c\r\n"), 400);
  EXPECT_EQ(status("Host: a\r\n: b\r\n"), 400);
  EXPECT_EQ(status("Host: a\r\nA b\r\n"), 400);
  EXPECT_EQ(status("Host: a\r\nA : b\r\n"), 400);
  EXPECT_EQ(status("Host: a\r\nA: b\nC: d\r\n"), 400);
  EXPECT_EQ(status("Host: a\r\nA: b\rC: d\r\n"), 400);
  EXPECT_EQ(status(std::string("Host: a\r\nA: b\0c\r\n", 17)), 400);
  EXPECT_TRUE(head_fault("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_TRUE(head_fault("GET /\r\n\r\n"));
}

}  // namespace
}  // namespace millrace
