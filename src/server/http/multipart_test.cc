#include "server/http/multipart.h"

#include <gtest/gtest.h>

#include "server/api/base64.h"
#include "server/api/query.h"

namespace millrace {
namespace {

TEST(Multipart, Boundaries) {
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(multipart_boundary("Multipart/Form-Data; charset=utf-8; Boundary=\"a b\""), "a b");
  EXPECT_FALSE(multipart_boundary("application/json"));
  EXPECT_FALSE(multipart_boundary("multipart/form-data"));
  EXPECT_FALSE(multipart_boundary("multipart/form-data; boundary="));
  EXPECT_FALSE(multipart_boundary("multipart/form-data; boundary=" + std::string(71, 'a')));
}

TEST(Multipart, ParsesParts) {
  const std::string body =
      "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\ncontent-disposition: form-data; "
      "name=file; filename=\"a\\\"b.txt\"\r\n"
      "Content-Type: text/plain\r\n\r\none\r\n--c\r\ntwo\r\n\r\n--b--\r\n";
  const auto parts = parse_multipart(body, "b");
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].name, "purpose");
  EXPECT_EQ((*parts)[0].content, "batch");
  EXPECT_EQ((*parts)[1].name, "file");
  EXPECT_EQ((*parts)[1].filename, "a\"b.txt");
  EXPECT_EQ((*parts)[1].content, "one\r\n--c\r\ntwo\r\n");
  EXPECT_TRUE(parse_multipart("--b--", "b")->empty());
}

TEST(Multipart, RejectsEveryTruncation) {
  const std::string body = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--";
  ASSERT_TRUE(parse_multipart(body, "b"));
  for (size_t size = 0; size < body.size(); ++size) EXPECT_FALSE(parse_multipart(body.substr(0, size), "b")) << size;
  EXPECT_FALSE(parse_multipart("--b\r\nno colon\r\n\r\nx\r\n--b--", "b"));
  EXPECT_FALSE(parse_multipart("--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--", "b"));  // no name
  std::string many;
  for (int i = 0; i < 65; ++i) many += "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n";
  EXPECT_FALSE(parse_multipart(many + "--b--", "b"));
}

TEST(Query, ValuesAreDecoded) {
  EXPECT_EQ(query_value("a=1&b=x%20y&c", "b"), "x y");
  EXPECT_EQ(query_value("a=1&b=x%20y&c", "a"), "1");
  EXPECT_EQ(query_value("a=1&b=%zz&c", "b"), "");
  EXPECT_EQ(query_value("a=1&c", "c"), "");
  EXPECT_EQ(query_value("aa=1", "a"), "");
}

TEST(Base64, Rfc4648) {
  const std::pair<const char*, const char*> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(base64_text(bytes), text);
  EXPECT_EQ(base64_text("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace millrace
