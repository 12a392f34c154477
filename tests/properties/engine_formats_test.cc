// Same request, same bits, for weights in every format that GGUF stores and for every KV format: a small Llama with
// random weights, 256 wide so that rows are whole blocks of any format. Runs on every kernel table that this machine
// has.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "loader/gguf_writer.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kWidth = 256, kHidden = 256, kVocab = 96, kHeads = 4, kKvHeads = 2, kHeadDim = 64;

class RandomLlama {
 public:
  explicit RandomLlama(const Format* format) : format_(format) {
    path_ = std::filesystem::temp_directory_path() /
            ("millrace_bits_" + std::to_string(getpid()) + "_" + std::string(format->name) + ".gguf");
    writer_.set_string("general.architecture", "llama");
    writer_.set_u32("llama.block_count", 1);
    writer_.set_u32("llama.context_length", 128);
    writer_.set_u32("llama.embedding_length", kWidth);
    writer_.set_u32("llama.feed_forward_length", kHidden);
    writer_.set_u32("llama.attention.head_count", kHeads);
    writer_.set_u32("llama.attention.head_count_kv", kKvHeads);
    writer_.set_u32("llama.vocab_size", kVocab);
    writer_.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    matrix("token_embd.weight", kVocab, kWidth);
    matrix("output.weight", kVocab, kWidth);
    norm("output_norm.weight");
    norm("blk.0.attn_norm.weight");
    norm("blk.0.ffn_norm.weight");
    matrix("blk.0.attn_q.weight", kHeads * kHeadDim, kWidth);
    matrix("blk.0.attn_k.weight", kKvHeads * kHeadDim, kWidth);
    matrix("blk.0.attn_v.weight", kKvHeads * kHeadDim, kWidth);
    matrix("blk.0.attn_output.weight", kWidth, kHeads * kHeadDim);
    matrix("blk.0.ffn_gate.weight", kHidden, kWidth);
    matrix("blk.0.ffn_up.weight", kHidden, kWidth);
    matrix("blk.0.ffn_down.weight", kWidth, kHidden);
    auto written = writer_.write(path_);
    EXPECT_TRUE(written.ok()) << (written.ok() ? "" : written.error().message);
  }
  ~RandomLlama() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  void matrix(const std::string& name, int64_t rows, int64_t cols) {
    const uint64_t stream = ++tensors_;
    writer_.add_tensor(name, format_, {rows, cols}, [this, stream, rows, cols](uint8_t* out, int64_t) -> Result<void> {
      std::vector<float> row(static_cast<size_t>(cols));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c)
          row[static_cast<size_t>(c)] =
              static_cast<float>(philox_uniform(5, stream, static_cast<uint64_t>(r * cols + c)) - 0.5) * 0.2f;
        format_->encode(row.data(), out + r * format_->row_bytes(cols), cols);
      }
      return {};
    });
  }
  void norm(const std::string& name) {
    const uint64_t stream = ++tensors_;
    writer_.add_tensor(name, find_format("f32"), {kWidth}, [stream](uint8_t* out, int64_t) -> Result<void> {
      for (int64_t i = 0; i < kWidth; ++i) {
        const auto value = static_cast<float>(0.5 + philox_uniform(5, stream, static_cast<uint64_t>(i)));
        std::memcpy(out + i * 4, &value, 4);
      }
      return {};
    });
  }

  const Format* format_;
  GgufWriter writer_;
  std::string path_;
  uint64_t tensors_ = 0;
};

// Written once: rounding to the smallest formats takes longer than a test.
const std::string& model_in(const std::string& weights) {
  static std::map<std::string, std::unique_ptr<RandomLlama>> written;
  auto& model = written[weights];
  if (!model) model = std::make_unique<RandomLlama>(find_format(weights));
  return model->path();
}

struct FormatCase {
  std::string weights, kv_format;
  Isa isa;
};

class EngineFormats : public ::testing::TestWithParam<FormatCase> {
 protected:
  EngineOptions with_format(EngineOptions o) const {
    o.kv_format = GetParam().kv_format;
    return o;
  }
  static Request request(int64_t seed, int64_t prompt) { return make_request(seed, prompt, 5, kVocab); }
};

// label(once /iq1_*): rounds to the slowest formats; the engine does the same with every format
TEST_P(EngineFormats, ResultsDependOnTheRequestOnly) {
  const auto model = load_for(model_in(GetParam().weights), GetParam().isa);
  ASSERT_TRUE(model);
  auto run_one = [&](const EngineOptions& o) {
    auto core = make_core(model, with_format(o));
    EXPECT_TRUE(core && core->add(1, request(1, 21)).ok());
    return run_all(*core, kVocab)[1];
  };
  const Shown alone = run_one(options());
  ASSERT_EQ(alone.tokens.size(), 5u);
  for (const auto& row : alone.logits) {
    float low = row[0], high = row[0];
    for (float x : row) {
      ASSERT_TRUE(std::isfinite(x));
      low = std::min(low, x), high = std::max(high, x);
    }
    EXPECT_GT(high - low, 0.1f);  // equal logits would prove nothing
  }
  EXPECT_TRUE(run_one(options(3)).same_bits(alone)) << "threads";
  EXPECT_TRUE(run_one(options(1, 512, 8)).same_bits(alone)) << "block size";
  for (int64_t chunk : {1, 7}) {
    EngineOptions o = options(1, chunk);
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o).same_bits(alone)) << "chunks of " << chunk;
  }
  auto core = make_core(model, with_format(options(1, 24)));
  for (RequestId mate : {100, 101, 102}) {
    if (mate == 101) {
      ASSERT_TRUE(core->add(1, request(1, 21)).ok());
    }
    ASSERT_TRUE(core->add(mate, request(static_cast<int64_t>(mate), 2 + 9 * static_cast<int64_t>(mate - 100))).ok());
  }
  EXPECT_TRUE(run_all(*core, kVocab)[1].same_bits(alone)) << "mates";
}

std::vector<FormatCase> format_cases() {
  std::vector<FormatCase> out;
  for (Isa isa : isa_levels()) {
    for (const Format* format : formats().members())
      if (format->gguf_type >= 0) out.push_back({std::string(format->name), "f16", isa});
    for (const char* kv :
         {"f32", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "f8_e4m3", "q8_0:values=f16", "f16:values=q8_0",
          "bf16:values=q8_0", "q8_0:values=q4_0", "f8_e4m3:values=q4_1", "progressive:below=0.1"})
      out.push_back({"q4_0", kv, isa});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, EngineFormats, ::testing::ValuesIn(format_cases()), [](const auto& test) {
  std::string kv_format = test.param.kv_format;
  for (char& c : kv_format)
    if (c == ':' || c == '=' || c == '.') c = '_';
  return test.param.weights + "_kv_" + kv_format + "_" + isa_label(test.param.isa);
});

}  // namespace
}  // namespace millrace
