#include "loader/gguf_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/ordered_json.h"
#include "loader/model_files.h"
#include "loader/test_bytes.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class GgufWriterTest : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return folder_.path(name); }
  size_t files() const { return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()); }

  testing::TemporaryFolder folder_;
};

GgufWriter::Produce encoded(const Format* format, const std::vector<float>& values) {
  return [format, values](uint8_t* destination, int64_t bytes) -> Result<void> {
    EXPECT_EQ(bytes, format->row_bytes(static_cast<int64_t>(values.size())));
    format->encode(values.data(), destination, static_cast<int64_t>(values.size()));
    return {};
  };
}

TEST_F(GgufWriterTest, RoundTrips) {
  std::vector<float> values;
  for (int i = 0; i < 3 * 2 * 32; ++i) values.push_back(static_cast<float>(i) / 8 - 7);
  GgufWriter writer;
  writer.set_string("general.architecture", "gpt2");
  writer.set_u32("gpt2.block_count", 1);
  writer.set_u32("gpt2.block_count", 12);  // the later value wins
  writer.set_u64("a.u64", uint64_t{1} << 63);
  writer.set_i32("a.i32", -5);
  writer.set_f32("a.f32", 0.125f);
  writer.set_bool("a.bool", true);
  writer.set_strings("a.strings", {"", "x", "\xc3\xa9"});
  writer.set_f32s("a.f32s", {1.5f, -2.0f});
  writer.set_i32s("a.i32s", {-1, 2});
  writer.set_bools("a.bools", {true, false});
  writer.set_string("tokenizer.ggml.model", "gpt2");
  writer.set_string("tokenizer.ggml.pre", "gpt-2");
  writer.set_strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|endoftext|>"});
  writer.set_strings("tokenizer.ggml.merges", {"a b"});
  writer.set_i32s("tokenizer.ggml.token_type", {1, 1, 1, 3});
  writer.set_u32("tokenizer.ggml.eos_token_id", 3);
  writer.set_bytes("tokenizer.ggml.precompiled_charsmap", {1, 0, 255});
  const char* names[] = {"f32", "f16", "q8_0"};
  for (const char* name : names)
    writer.add_tensor(name, find_format(name), {3, 2, 32}, encoded(find_format(name), values));
  writer.add_tensor("norm", find_format("f32"), {3}, encoded(find_format("f32"), {1, 2, 3}));

  std::vector<std::pair<int64_t, int64_t>> progress;
  auto written = writer.write(path("m.gguf"), [&](int64_t done, int64_t all) { progress.emplace_back(done, all); });
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(progress.back().first, static_cast<int64_t>(fs::file_size(path("m.gguf"))));
  EXPECT_EQ(progress.back().first, progress.back().second);

  auto model = open_model_files(path("m.gguf"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->config->dump(),
            R"({"general.architecture":"gpt2","gpt2.block_count":12,"a.u64":9223372036854775808,"a.i32":-5,)"
            R"("a.f32":0.125,"a.bool":true,"a.strings":["","x","é"],"a.f32s":[1.5,-2.0],"a.i32s":[-1,2],)"
            R"("a.bools":[true,false],"tokenizer.ggml.model":"gpt2","tokenizer.ggml.pre":"gpt-2",)"
            R"("tokenizer.ggml.eos_token_id":3})");
  EXPECT_EQ(model->tokenizer->tokens.size(), 4u);
  EXPECT_EQ(model->tokenizer->merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(model->tokenizer->types[3], TokenType::control);
  EXPECT_EQ(model->tokenizer->precompiled_charsmap, (std::vector<uint8_t>{1, 0, 255}));
  ASSERT_EQ(model->tensors.size(), 4u);
  for (const char* name : names) {
    const Tensor& tensor = model->find(name)->tensor;
    EXPECT_EQ(tensor.format, find_format(name));
    EXPECT_EQ(tensor.rank, 3);
    EXPECT_EQ(tensor.dims, (std::array<int64_t, 4>{3, 2, 32, 1}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 32, 0u);
    std::vector<uint8_t> expected(static_cast<size_t>(tensor.bytes));
    find_format(name)->encode(values.data(), expected.data(), static_cast<int64_t>(values.size()));
    EXPECT_EQ(std::memcmp(tensor.data, expected.data(), expected.size()), 0) << name;
  }
  EXPECT_TRUE(check_finite(*model).ok());
}

TEST_F(GgufWriterTest, LeavesNothingBehindWhenATensorFails) {
  GgufWriter writer;
  writer.add_tensor("t", find_format("f32"), {4}, [](uint8_t*, int64_t) -> Result<void> { return Error::user("no"); });
  auto written = writer.write(path("m.gguf"));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().message, "no");
  EXPECT_EQ(files(), 0u);
}

TEST_F(GgufWriterTest, RejectsWhatGgufCannotHold) {
  auto refused = [&](const char* name, const char* format, std::vector<int64_t> dims) {
    GgufWriter writer;
    writer.add_tensor("first", find_format("f32"), {1}, encoded(find_format("f32"), {1}));
    writer.add_tensor(name, format ? find_format(format) : nullptr, std::move(dims), encoded(find_format("f32"), {1}));
    return !writer.write(path("m.gguf")).ok() && files() == 0;
  };
  EXPECT_TRUE(refused("first", "f32", {1}));  // name twice
  EXPECT_TRUE(refused("x", nullptr, {1}));
  EXPECT_TRUE(refused("x", "q8_0", {33}));  // no whole blocks
  EXPECT_TRUE(refused("x", "f32", {}));
  EXPECT_TRUE(refused("x", "f32", {1, 1, 1, 1, 1}));
  EXPECT_TRUE(refused("x", "f32", {0}));
  EXPECT_TRUE(refused("x", "f32", {INT64_MAX, INT64_MAX}));
  EXPECT_TRUE(refused("x", "f32", {INT64_MAX / 8, 1}));
}

TEST_F(GgufWriterTest, NeverReplacesNonFiles) {
  GgufWriter writer;
  EXPECT_EQ(writer.write(folder_.path()).error().kind, ErrorKind::user);
  EXPECT_EQ(writer.write("/dev/null").error().kind, ErrorKind::user);
  EXPECT_EQ(writer.write(path("missing/m.gguf")).error().kind, ErrorKind::user);
}

}  // namespace
}  // namespace millrace
