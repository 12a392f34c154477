// CEPE's encoder and cross-attention against the independent reference of make_cepe.py, on every kernel table, and what
// their files are refused for.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "expected.h"
#include "kernel_tables.h"
#include "models/document_encoder/cross_layers.h"
#include "models/document_encoder/document_encoder.h"
#include "models/mixers/mixer.h"
#include "models/model_runner.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
const fs::path kCepe = fs::path(MILLRACE_SOURCE_DIR) / "tests" / "golden" / "document_encoders" / "cepe";
constexpr int64_t kBlock = 4, kMax = 64;

struct CepeCase {
  bool start;
  int64_t piece;
  std::vector<std::vector<TokenId>> documents;
  std::vector<TokenId> tokens;
  std::vector<float> logits;
};

std::vector<CepeCase> read_cases() {
  std::vector<CepeCase> out;
  const auto expected = nlohmann::json::parse(testing::read_file(kCepe / "expected.json"));
  for (const auto& one : expected["cases"])
    out.push_back({one["start"], one["piece"], one["documents"], one["tokens"],
                   testing::decode_floats(one["logits"].get<std::string>())});
  return out;
}

// Both halves, and the pieces of one stream in a pool of their own: every row of a pass sees all of them.
class Reader final : public LayerBlock {
 public:
  Reader(const KernelTable& table, ThreadPool& pool, const Model& model) {
    const auto files = open_draft_files(kCepe.string()).value();
    encoder_ = DocumentEncoder::load(files, table, pool, nullptr).value();
    cross_ = CrossLayers::load(files, model.spec(), encoder_->spec().width, table, pool, nullptr).value();
    const ForwardLimits limits{.tokens = kMax, .outputs = 1, .context = 2 * kMax};
    const auto make = [&](const ArchSpec& spec, std::optional<KvPool>& kv, std::optional<ForwardContext>& context) {
      kv = KvPool::create({find_format("f32"), kBlock, layer_states(spec)}, 40).value();
      context = ForwardContext::create(spec, table, pool, *kv, limits).value();
    };
    make(encoder_->spec(), encoder_kv_, encoding_);
    make(cross_->spec(), kv_, crossing_);
    for (int64_t i = 0; i < 16; ++i) scratch_.push_back(encoder_kv_->allocate().value());
    keys_ = AlignedBuffer::allocate(4 * cross_->scratch_floats(kMax), "test").value();
  }

  void read(const CepeCase& of) {
    const std::vector<TokenId> first = of.start ? std::vector{encoder_->start_token()} : std::vector<TokenId>();
    const int64_t each = of.piece - std::ssize(first);
    for (const auto& document : of.documents) {
      for (int64_t begin = 0; begin < std::ssize(document); begin += each) {
        std::vector<TokenId> piece = first;
        piece.insert(piece.end(), document.begin() + begin,
                     document.begin() + std::min(std::ssize(document), begin + each));
        encode(piece);
      }
    }
  }

  void begin_rows(int64_t count) {
    rows_.clear();
    for (int64_t i = 0; i < count; ++i) rows_.push_back(static_cast<int32_t>(i));
  }

  bool runs(int64_t layer) const override { return !segments_.empty() && layer >= cross_->first_layer(); }
  void run(int64_t layer, float* residual) override {
    Batch batch;
    batch.tokens.resize(rows_.size());
    batch.block_tables = table_;
    batch.spans.push_back({0, std::ssize(rows_), segments_.back().end, 0, std::ssize(table_)});
    add_visibility({.segments = segments_, .whole = true}, batch);
    cross_->run(layer, rows_, residual, batch, *crossing_);
  }
  void keep(std::span<const int32_t>) override {}

 private:
  void encode(const std::vector<TokenId>& piece) {
    std::vector<BlockId> blocks;
    for (int64_t slot = 0; slot < std::ssize(piece); slot += kBlock) blocks.push_back(kv_->allocate().value());
    Batch batch;
    encoder_->forward(piece, scratch_, batch, *encoding_);
    cross_->store(encoding_->normed.as<float>(), std::ssize(piece), blocks, *kv_, keys_.as<float>(), *encoding_);
    const int64_t slot = std::ssize(table_) * kBlock;
    segments_.push_back({slot, slot + std::ssize(piece)});
    table_.insert(table_.end(), blocks.begin(), blocks.end());
  }

  std::unique_ptr<DocumentEncoder> encoder_;
  std::unique_ptr<CrossLayers> cross_;
  std::optional<KvPool> encoder_kv_, kv_;
  std::optional<ForwardContext> encoding_, crossing_;
  AlignedBuffer keys_;
  std::vector<BlockId> scratch_, table_;
  std::vector<KeySegment> segments_;
  std::vector<int32_t> rows_;
};

class Cepe : public ::testing::TestWithParam<int> {
 protected:
  const KernelTable& table() const { return testing::kernel_tables()[static_cast<size_t>(GetParam())]; }
  std::shared_ptr<ThreadPool> pool_ = std::make_shared<ThreadPool>(2);
};

TEST_P(Cepe, LogitsAreThoseOfTheReference) {
  const auto files = std::make_shared<const ModelFiles>(open_model_files(kCepe.string()).value());
  const auto model = Model::load(files, table(), *pool_, {.context = kMax}).value();
  auto runner = ModelRunner::create(*model, table(),
                                    {.threads = pool_,
                                     .layout = {find_format("f32"), 16, model->kv_layers()},
                                     .blocks = 4,
                                     .limits = {kMax, kMax, kMax}})
                    .value();
  std::vector<BlockId> blocks;
  for (int64_t i = 0; i < 4; ++i) blocks.push_back(runner->kv().allocate().value());
  for (const CepeCase& one : read_cases()) {
    for (const int64_t chunk : {std::ssize(one.tokens), int64_t{5}}) {
      SCOPED_TRACE(std::to_string(one.documents.size()) + " documents, chunks of " + std::to_string(chunk));
      Reader reader(table(), *pool_, *model);
      reader.read(one);
      runner->hooks().add(reader);
      std::vector<float> logits;
      for (int64_t first = 0; first < std::ssize(one.tokens); first += chunk) {
        const int64_t end = std::min(std::ssize(one.tokens), first + chunk);
        runner->start();
        runner->begin(blocks, first);
        for (int64_t i = first; i < end; ++i) runner->add(one.tokens[static_cast<size_t>(i)], i, true);
        reader.begin_rows(end - first);
        runner->forward();
        logits.insert(logits.end(), runner->logits(), runner->logits(end - first));
      }
      runner->hooks().remove(reader);
      EXPECT_LT(testing::relative_error(logits, one.logits), 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Cepe, ::testing::Range(0, static_cast<int>(testing::kernel_tables().size())));

class CepeFiles : public ::testing::Test {
 protected:
  // Loads a copy of the folder in which `from` in a file is replaced.
  Result<void> load(const std::string& file, const std::string& from, const std::string& to) {
    fs::remove_all(folder_);
    fs::copy(kCepe, folder_, fs::copy_options::recursive);
    std::string text = testing::read_file(folder_ / file);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::ofstream(folder_ / file, std::ios::binary) << text;
    return load(folder_.string());
  }
  Result<void> load(const std::string& path) {
    MILLRACE_TRY(const auto files, open_draft_files(path));
    MILLRACE_TRY(const auto encoder, DocumentEncoder::load(files, table_, pool_, nullptr));
    MILLRACE_TRY(const auto cross, CrossLayers::load(files, target_, encoder->spec().width, table_, pool_, nullptr));
    return {};
  }
  void refused(const Result<void>& loaded, ErrorKind kind, const std::string& part) {
    ASSERT_FALSE(loaded.ok()) << part;
    EXPECT_EQ(loaded.error().kind, kind) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find(part), std::string::npos) << loaded.error().message;
  }
  void SetUp() override { target_ = read_arch_spec(open_model_files(kCepe.string()).value()).value(); }
  void TearDown() override { fs::remove_all(folder_); }

  const KernelTable& table_ = testing::kernel_tables().back();
  ThreadPool pool_{1};
  ArchSpec target_;
  const fs::path folder_ = fs::path(::testing::TempDir()) / ("millrace_cepe_" + std::to_string(::getpid()));
};

TEST_F(CepeFiles, DamagedAndForeignOnesAreRefused) {
  const auto config = [&](const std::string& from, const std::string& to) { return load("config.json", from, to); };
  const auto tensors = [&](const std::string& from, const std::string& to) {
    return load("model.safetensors", from, to);
  };
  EXPECT_TRUE(load(kCepe.string()).ok());
  refused(load(""), ErrorKind::user, "model=PATH");
  refused(load("/nowhere"), ErrorKind::corrupt, "/nowhere: no such file or folder");
  refused(config("\"encoder_config\"", "\"encoder_comfig\""), ErrorKind::unsupported, "encoder_config is missing");
  refused(config("\"hidden_size\": 24", "\"hidden_size\": 32"), ErrorKind::corrupt, "encoder.embed_tokens.weight");
  refused(config("\"hidden_size\": 24", "\"hidden_size\": -4"), ErrorKind::corrupt, "hidden_size");
  refused(config("\"num_attention_heads\": 3", "\"num_attention_heads\": 5"), ErrorKind::corrupt, "q_proj.weight");
  refused(config("\"context_only\"", "\"with_query-64\""), ErrorKind::unsupported, "encode_mode 'with_query-64'");
  refused(config("\"num_cross_attn_hidden_states\": 1", "\"num_cross_attn_hidden_states\": 2"), ErrorKind::unsupported,
          "num_cross_attn_hidden_states 2");
  refused(config("\"num_cross_attn_layers\": 2", "\"num_cross_attn_layers\": 3"), ErrorKind::corrupt,
          "model.layers.0.cross_attn.layernorm.weight is missing");
  refused(config("\"num_cross_attn_layers\": 2", "\"num_cross_attn_layers\": 4"), ErrorKind::corrupt, "4 of 3 layers");
  refused(config("\"num_cross_attn_layers\"", "\"num_cross_attn_leyers\""), ErrorKind::corrupt,
          "num_cross_attn_layers");
  refused(config("\"encoder_is_model\": false", "\"encoder_is_model\": true"), ErrorKind::unsupported,
          "encoder_is_model");
  refused(config("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4"), ErrorKind::user, "this one has 3 layers");
  refused(tensors("\"encoder.norm.weight\"", "\"encoder.form.weight\""), ErrorKind::corrupt,
          "encoder.norm.weight is missing");
  refused(tensors("layers.2.cross_attn.v_proj", "layers.2.cross_attn.w_proj"), ErrorKind::corrupt,
          "model.layers.2.cross_attn.v_proj.weight is missing");
  refused(tensors("{\"__metadata__", "{\"__metadata_"), ErrorKind::corrupt, "model.safetensors");
}

}  // namespace
}  // namespace millrace
