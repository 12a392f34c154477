#include "loader/safetensors.h"

#include <gtest/gtest.h>

#include "contains.h"
#include "loader/test_bytes.h"

namespace millrace {
namespace {

using testing::Bytes;

Bytes file_of(std::string_view header, size_t data_bytes) {
  Bytes file;
  return file.put(uint64_t{header.size()}).raw(header).zeros(data_bytes);
}

std::string error_of(std::string_view header, size_t data_bytes) {
  auto parsed = parse_safetensors(file_of(header, data_bytes).view(), "m.safetensors");
  if (parsed.ok()) return "(accepted)";
  EXPECT_EQ(parsed.error().kind, ErrorKind::corrupt);
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  EXPECT_TRUE(parsed.error().message.starts_with("m.safetensors: ")) << parsed.error().message;
  return parsed.error().message;
}

#define EXPECT_ERROR(text, header, bytes) EXPECT_PRED2(testing::contains, error_of(header, bytes), text)

TEST(Safetensors, ReadsTensorsOfEveryRank) {
  auto parsed = parse_safetensors(file_of(R"({"__metadata__":{"format":"pt","x":{"y":[1,null]}},)"
                                          R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                                          R"("s":{"data_offsets":[0,4],"shape":[],"dtype":"F32"},)"
                                          R"("e":{"dtype":"I64","shape":[0,7],"data_offsets":[16,16]},)"
                                          R"("five":{"dtype":"U8","shape":[2,1,2,1,3],"data_offsets":[16,28]}}   )",
                                          28)
                                      .view(),
                                  "m");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ASSERT_EQ(parsed->size(), 4u);
  const SafetensorsTensor& a = (*parsed)[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, "BF16");
  EXPECT_EQ(a.rank, 2);
  EXPECT_EQ(a.dims, (std::array<int64_t, 4>{2, 3, 1, 1}));
  EXPECT_EQ(a.bytes, 12u);
  EXPECT_EQ((*parsed)[1].offset + 4, a.offset);
  EXPECT_EQ((*parsed)[1].rank, 0);
  EXPECT_EQ((*parsed)[2].bytes, 0u);
  EXPECT_EQ((*parsed)[3].dims, (std::array<int64_t, 4>{2, 2, 1, 3}));
}

TEST(Safetensors, AcceptsAnEmptyModelAndNullMetadata) {
  EXPECT_EQ(error_of("{}", 0), "(accepted)");
  EXPECT_EQ(error_of(R"({"__metadata__":null})", 0), "(accepted)");
}

TEST(Safetensors, RefusesABadHeader) {
  for (size_t size : {0, 1, 7}) {
    std::vector<uint8_t> image(size);
    EXPECT_FALSE(parse_safetensors(image, "m").ok());
  }
  Bytes long_header;
  long_header.put(uint64_t{1} << 63).raw("{}");
  EXPECT_FALSE(parse_safetensors(long_header.view(), "m").ok());
  Bytes past_end;
  past_end.put(uint64_t{3}).raw("{}");
  EXPECT_TRUE(testing::contains(parse_safetensors(past_end.view(), "m").error().message, "past the end of the file"));
  EXPECT_ERROR("does not begin with '{'", "", 0);
  EXPECT_ERROR("does not begin with '{'", "[]", 0);
  EXPECT_ERROR("not valid JSON at offset", "{", 0);
  EXPECT_ERROR("not valid JSON", "{}}", 0);
  EXPECT_ERROR("not valid JSON", "{\"\xff\":{}}", 0);
  EXPECT_ERROR("nests too deep", R"({"__metadata__":)" + std::string(5000, '[') + std::string(5000, ']') + "}", 0);
}

TEST(Safetensors, RefusesEntriesOfTheWrongShape) {
  EXPECT_ERROR("tensor 'a': unexpected number 1", R"({"a":1})", 0);
  EXPECT_ERROR("tensor 'a': unexpected null", R"({"a":null})", 0);
  EXPECT_ERROR("tensor 'a': unexpected list", R"({"a":[]})", 0);
  EXPECT_ERROR("is missing", R"({"a":{}})", 0);
  EXPECT_ERROR("is missing", R"({"a":{"dtype":"U8","shape":[1]}})", 0);
  EXPECT_ERROR("unknown key 'extra'", R"({"a":{"extra":1}})", 0);
  EXPECT_ERROR("unknown dtype 'Q9'", R"({"a":{"dtype":"Q9","shape":[1],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("unexpected number 8", R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("unexpected list", R"({"a":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("unexpected text '1'", R"({"a":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("unexpected list", R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("unexpected object", R"({"a":{"dtype":"U8","shape":{},"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("must hold two numbers", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1);
  EXPECT_ERROR("must hold two numbers", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1);
  EXPECT_ERROR("is negative", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("not a whole number", R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("more than 16 numbers",
               R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1);
}

TEST(Safetensors, RefusesDuplicates) {
  EXPECT_ERROR("key 'a' appears twice",
               R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
               R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
               2);
  EXPECT_ERROR("key 'dtype' appears twice", R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("key '__metadata__' appears twice", R"({"__metadata__":{},"__metadata__":{}})", 0);
}

TEST(Safetensors, RefusesAbsurdSizes) {
  EXPECT_ERROR("dimension of size 9223372036854775808",
               R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("2^63", R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("2^63", R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("not a whole number of 64 bits",
               R"({"a":{"dtype":"U8","shape":[99999999999999999999999],"data_offsets":[0,1]}})", 1);
  EXPECT_ERROR("need 6 bytes, data_offsets give 5", R"({"a":{"dtype":"F16","shape":[3],"data_offsets":[0,5]}})", 5);
  EXPECT_ERROR("before they begin", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 2);
  EXPECT_ERROR("offset goes past 2^64",
               R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}})", 1);
  EXPECT_ERROR("do not fill whole bytes", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1);
}

TEST(Safetensors, RefusesGapsAndTrailingBytes) {
  EXPECT_ERROR("tensor 'a' at offset", R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 8);
  EXPECT_ERROR("past the end of the file", R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 8);
  EXPECT_ERROR("overlaps tensor 'a'",
               R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
               R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
               7);
  EXPECT_ERROR("2 bytes before it belong to no tensor",
               R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
               R"("b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})",
               10);
  EXPECT_ERROR("after the last tensor", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5);
}

// Every single-byte change and every truncation is either read or refused, never more.
TEST(Safetensors, SurvivesEveryMutationOfASmallFile) {
  Bytes file = file_of(R"({"__metadata__":{"a":"b"},"w":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},)"
                       R"("v":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}} )",
                       11);
  ASSERT_TRUE(parse_safetensors(file.view(), "m").ok());
  for (size_t length = 0; length < file.bytes().size(); ++length) {
    std::vector<uint8_t> cut(file.bytes().begin(), file.bytes().begin() + static_cast<ptrdiff_t>(length));
    EXPECT_FALSE(parse_safetensors(cut, "m").ok()) << length;
  }
  for (size_t i = 0; i < file.bytes().size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::vector<uint8_t> changed = file.bytes();
      changed[i] = static_cast<uint8_t>(value);
      auto parsed = parse_safetensors(changed, "m");
      if (!parsed.ok()) continue;
      for (const SafetensorsTensor& tensor : *parsed) EXPECT_LE(tensor.offset + tensor.bytes, changed.size());
    }
  }
}

}  // namespace
}  // namespace millrace
