// `convert --format q4_k` on a model whose rows are not whole blocks of 256 left every matrix unconverted, wrote a file
// of full size and exited with 0, without a warning. The tests converted to q8_0 only, whose blocks fit every test
// model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "formats/format.h"
#include "loader/gguf_writer.h"
#include "loader/model_files.h"
#include "models/convert/convert.h"
#include "shared_data.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class ConvertFallback : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("convert_fallback." + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<ConvertReport> convert(const fs::path& from, const std::string& format) {
    ThreadPool pool(1);
    return convert_model({from, folder_ / "out.gguf", format, "", true, {}}, pool);
  }
  std::string type_of(const char* tensor) {
    const auto files = open_model_files(folder_ / "out.gguf");
    EXPECT_TRUE(files.ok()) << files.error().message;
    const StoredTensor* found = files.ok() ? files->find(tensor) : nullptr;
    return found ? found->type_name : "";
  }
  fs::path folder_;
};

// 64 columns: blocks of 32 fit, those of 256 do not.
TEST_F(ConvertFallback, RowsOf64TakeTheBlocksOf32) {
  const fs::path model = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/llama";
  for (const auto& [format, instead] : {std::pair{"q4_k", "q5_0"},
                                        {"q5_k", "q5_1"},
                                        {"q6_k", "q8_0"},
                                        {"q2_k", "iq4_nl"},
                                        {"q3_k", "iq4_nl"},
                                        {"iq4_xs", "iq4_nl"}}) {
    const auto report = convert(model, format);
    ASSERT_TRUE(report.ok()) << format << ": " << report.error().message;
    EXPECT_FALSE(report->formats.contains(format));
    ASSERT_TRUE(report->formats.contains(instead)) << format;
    EXPECT_EQ(report->fallbacks.size(), static_cast<size_t>(report->formats.at(instead).first)) << format;
    for (const auto& one : report->fallbacks) EXPECT_EQ(one.format, instead) << one.name;
    EXPECT_NE(report->fallbacks.front().why.find(format), std::string::npos) << report->fallbacks.front().why;
    std::string upper = instead;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    EXPECT_EQ(type_of("blk.0.attn_q.weight"), upper);
    const auto plain = convert(model, "f32");
    ASSERT_TRUE(plain.ok());
    EXPECT_LT(report->bytes * 2, plain->bytes) << format;
  }
}

// Every quantized format that a GGUF file can hold falls back to one with blocks of 32. The test covers all of them, so
// that a new format with larger blocks is not forgotten.
TEST_F(ConvertFallback, EveryFormatHasOneForNarrowRows) {
  const fs::path model = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/llama";
  for (const Format* format : formats().members()) {
    if (format->gguf_type < 0) continue;
    const auto report = convert(model, std::string(format->name));
    ASSERT_TRUE(report.ok()) << format->name << ": " << report.error().message;
    EXPECT_EQ(report->fallbacks.empty(), format->block_values <= 32) << format->name;
    const auto files = open_model_files(folder_ / "out.gguf");
    ASSERT_TRUE(files.ok());
    const Format* used = files->find("blk.0.attn_q.weight")->tensor.format;
    EXPECT_EQ(used->block_values > 1, format->block_values > 1) << format->name << " became " << used->name;
  }
}

// A generated model with `cols` columns everywhere but in ffn_down.
void write_model(const fs::path& path, int64_t width, int64_t hidden) {
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  for (const auto& [key, value] : {std::pair<const char*, uint32_t>{"block_count", 1},
                                   {"context_length", 32},
                                   {"embedding_length", static_cast<uint32_t>(width)},
                                   {"feed_forward_length", static_cast<uint32_t>(hidden)},
                                   {"attention.head_count", 2},
                                   {"vocab_size", 40}})
    writer.set_u32("llama." + std::string(key), value);
  writer.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.set_string("tokenizer.ggml.model", "none");
  const Format* f32 = find_format("f32");
  const auto add = [&](const std::string& name, std::vector<int64_t> dims) {
    int64_t bytes = 4;
    for (int64_t dim : dims) bytes *= dim;
    writer.add_tensor(name, f32, dims, [bytes](uint8_t* to, int64_t) {
      for (int64_t i = 0; i < bytes / 4; ++i) reinterpret_cast<float*>(to)[i] = static_cast<float>(i % 31 - 15) / 16;
      return Result<void>();
    });
  };
  add("token_embd.weight", {40, width});
  for (const char* norm : {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"}) add(norm, {width});
  for (const char* square : {"attn_q", "attn_k", "attn_v", "attn_output"})
    add("blk.0." + std::string(square) + ".weight", {width, width});
  for (const char* up : {"ffn_gate", "ffn_up"}) add("blk.0." + std::string(up) + ".weight", {hidden, width});
  add("blk.0.ffn_down.weight", {width, hidden});
  ASSERT_TRUE(writer.write(path, {}).ok());
}

TEST_F(ConvertFallback, ChoosesTheFormatPerTensor) {
  write_model(folder_ / "in.gguf", 256, 352);
  const auto report = convert(folder_ / "in.gguf", "q4_k");
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(type_of("blk.0.attn_q.weight"), "Q4_K");
  EXPECT_EQ(type_of("blk.0.ffn_down.weight"), "Q5_0");
  ASSERT_EQ(report->fallbacks.size(), 1u);
  EXPECT_EQ(report->fallbacks[0].name, "blk.0.ffn_down.weight");
  // Not whole blocks of 32 either.
  write_model(folder_ / "in.gguf", 256, 346);
  const auto odd = convert(folder_ / "in.gguf", "q4_k");
  ASSERT_TRUE(odd.ok()) << odd.error().message;
  EXPECT_EQ(type_of("blk.0.ffn_down.weight"), "F16");
  ASSERT_EQ(odd->fallbacks.size(), 1u);
  EXPECT_EQ(odd->fallbacks[0].format, "f16");
}

TEST_F(ConvertFallback, NothingQuantizedIsAnError) {
  write_model(folder_ / "in.gguf", 36, 50);
  for (const char* format : {"q4_k", "q8_0", "q4_0"}) {
    const auto report = convert(folder_ / "in.gguf", format);
    ASSERT_FALSE(report.ok()) << format;
    EXPECT_EQ(report.error().kind, ErrorKind::unsupported);
    EXPECT_NE(report.error().message.find(format), std::string::npos) << report.error().message;
    EXPECT_FALSE(fs::exists(folder_ / "out.gguf"));
  }
  EXPECT_TRUE(convert(folder_ / "in.gguf", "f16").ok());
}

}  // namespace
}  // namespace millrace
