// The file of saved log-probabilities, byte by byte: what is written, and every invalid header, size and value with its
// error message.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "evaluate/logits_file.h"

namespace millrace {
namespace {

class LogitsFileEdges : public ::testing::Test {
 protected:
  void TearDown() override {
    std::filesystem::remove_all(path_);
    std::filesystem::remove_all(path_ + ".part");
  }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary | std::ios::trunc) << text; }
  template <typename T>
  static std::string raw(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  static std::string head(uint32_t version, uint32_t element, uint64_t vocab, uint64_t rows) {
    return "MRLOGITS" + raw(version) + raw(element) + raw(vocab) + raw(rows);
  }
  // The error from opening the file or reading its only row.
  Error failure(const std::string& text) const {
    write(text);
    auto reader = LogitsReader::open(path_);
    if (!reader.ok()) return reader.error();
    TokenId target = 0;
    std::vector<float> row(static_cast<size_t>(reader->vocab()));
    const auto read = reader->next(&target, row.data());
    EXPECT_FALSE(read.ok());
    return read.ok() ? Error{} : read.error();
  }

  const std::string path_ = ::testing::TempDir() + "logits_file_edges_" + std::to_string(getpid());
};

TEST_F(LogitsFileEdges, BytesMatchTheHeader) {
  const float row[] = {-0.5f, -std::numeric_limits<float>::infinity(), std::nanf(""), 0};
  {
    auto writer = LogitsWriter::create(path_, LogitsElement::f32, 3, 2);
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(std::filesystem::exists(path_ + ".part"));
    ASSERT_TRUE(writer->add(7, row).ok());
    ASSERT_TRUE(writer->add(-2, row + 1).ok());
    ASSERT_TRUE(writer->finish().ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
  const std::string low = raw(-65504.0f);
  EXPECT_EQ(bytes(),
            head(1, 0, 3, 2) + raw(int32_t{7}) + raw(-0.5f) + low + low + raw(int32_t{-2}) + low + low + raw(0.0f));
  {
    auto writer = LogitsWriter::create(path_, LogitsElement::f16, 2, 1);
    ASSERT_TRUE(writer->add(1, row).ok());
    ASSERT_TRUE(writer->finish().ok());
  }
  EXPECT_EQ(bytes(), head(1, 1, 2, 1) + raw(int32_t{1}) + raw(uint16_t{0xb800}) + raw(uint16_t{0xfbff}));
  auto reader = LogitsReader::open(path_);
  ASSERT_TRUE(reader.ok());
  float read[] = {9, 9, 9};
  TokenId target = 0;
  ASSERT_TRUE(reader->next(&target, read).ok());
  EXPECT_EQ(target, 1);
  EXPECT_EQ(read[0], -0.5f);
  EXPECT_EQ(read[1], -65504.0f);
  EXPECT_EQ(read[2], 9);
  const auto more = reader->next(&target, read);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().message, path_ + ": has only 1 rows");
}

TEST_F(LogitsFileEdges, MissingRowsAreAnErrorAndLeaveNoFile) {
  const float row[] = {-1};
  for (int written : {0, 1, 3}) {
    auto writer = LogitsWriter::create(path_, LogitsElement::f32, 1, 2);
    for (int i = 0; i < written; ++i) ASSERT_TRUE(writer->add(0, row).ok());
    const auto done = writer->finish();
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().kind, ErrorKind::internal);
    EXPECT_EQ(done.error().message, path_ + ": " + std::to_string(written) + " of 2 rows were written");
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
}

TEST_F(LogitsFileEdges, UnwritablePaths) {
  const auto nowhere = LogitsWriter::create("/nowhere/at/all", LogitsElement::f32, 1, 1);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().kind, ErrorKind::user);
  EXPECT_EQ(nowhere.error().message, "/nowhere/at/all.part: cannot be created: No such file or directory");
  std::filesystem::create_directory(path_);  // a folder in place of the file
  std::ofstream(path_ + "/something") << "x";
  const float row[] = {-1};
  auto writer = LogitsWriter::create(path_, LogitsElement::f32, 1, 1);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->add(0, row).ok());
  const auto done = writer->finish();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().kind, ErrorKind::resource);
  EXPECT_TRUE(done.error().message.starts_with(path_ + ": cannot be written: ")) << done.error().message;
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
}

TEST_F(LogitsFileEdges, InvalidHeaders) {
  const std::string row = raw(int32_t{0}) + raw(-1.0f);
  struct Case {
    std::string text, message;
    ErrorKind kind;
  };
  const Case cases[] = {
      {"", "is not a file of saved log-probabilities; create one with perplexity --save-logits", ErrorKind::corrupt},
      {"NRLOGITS" + head(1, 0, 1, 1).substr(8) + row,
       "is not a file of saved log-probabilities; create one with perplexity --save-logits", ErrorKind::corrupt},
      {head(2, 0, 1, 1) + row, "version 2; this build reads 1", ErrorKind::unsupported},
      {head(1, 2, 1, 1) + row, "element type 2; this build reads 0 (F32) and 1 (F16)", ErrorKind::unsupported},
      {head(1, 0, 0, 1) + row, "vocabulary of 0 is outside 1 to 268435456", ErrorKind::corrupt},
      {head(1, 0, (1 << 28) + 1, 1) + row, "vocabulary of 268435457 is outside 1 to 268435456", ErrorKind::corrupt},
      {head(1, 0, 1 << 28, 1) + row,
       "1 rows of 1073741828 bytes after a header of 32 do not add up to the file's 40 bytes", ErrorKind::corrupt},
      {head(1, 0, 1, 0), "0 rows of 8 bytes after a header of 32 do not add up to the file's 32 bytes",
       ErrorKind::corrupt},
      {head(1, 0, 1, 2) + row, "2 rows of 8 bytes after a header of 32 do not add up to the file's 40 bytes",
       ErrorKind::corrupt},
      {head(1, 0, 1, 1) + row + "x", "1 rows of 8 bytes after a header of 32 do not add up to the file's 41 bytes",
       ErrorKind::corrupt},
      {head(1, 1, 1, 1) + row, "1 rows of 6 bytes after a header of 32 do not add up to the file's 40 bytes",
       ErrorKind::corrupt},
  };
  for (const Case& one : cases) {
    const Error error = failure(one.text);
    EXPECT_EQ(error.message, path_ + ": " + one.message);
    EXPECT_EQ(error.kind, one.kind) << one.message;
  }
  const auto missing = LogitsReader::open("/nowhere/at/all");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "/nowhere/at/all: cannot be opened: No such file or directory");
}

TEST_F(LogitsFileEdges, InvalidLogProbabilities) {
  const auto row = [&](float second) { return head(1, 0, 2, 1) + raw(int32_t{0}) + raw(-1.0f) + raw(second); };
  for (const auto& [value, text] :
       {std::pair(0.02f, "0.02"), {-1.5e30f, "-1.5e+30"}, {std::numeric_limits<float>::infinity(), "inf"}}) {
    const Error error = failure(row(value));
    EXPECT_EQ(error.kind, ErrorKind::corrupt);
    EXPECT_EQ(error.message, path_ + ": row 0 has " + text + " for token 1, which is not a log-probability");
  }
  EXPECT_FALSE(failure(row(std::nanf(""))).message.empty());
  for (float good : {0.01f, 0.0f, -1e30f}) {
    write(row(good));
    auto reader = LogitsReader::open(path_);
    ASSERT_TRUE(reader.ok());
    TokenId target = 0;
    float values[2];
    EXPECT_TRUE(reader->next(&target, values).ok()) << good;
  }
}

// The file shrinks after it was opened.
TEST_F(LogitsFileEdges, UnreadableRow) {
  std::string text = head(1, 0, 4096, 2);
  for (int i = 0; i < 2; ++i) text += raw(int32_t{i}) + std::string(4096 * 4, '\0');
  write(text);
  auto reader = LogitsReader::open(path_);
  ASSERT_TRUE(reader.ok());
  std::filesystem::resize_file(path_, 32 + 4 + 4096 * 4 + 100);
  TokenId target = 9;
  std::vector<float> row(4096);
  ASSERT_TRUE(reader->next(&target, row.data()).ok());
  const auto cut = reader->next(&target, row.data());
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().message, path_ + ": row 1 cannot be read");
}

}  // namespace
}  // namespace millrace
