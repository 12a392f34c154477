// Whole compressions: the output is a GGUF file that loads and runs, outputs on the calibration text are nearer than
// those of rounding, and neither threads nor the memory budget change a bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/ordered_json.h"
#include "compress/compress.h"
#include "compress/linear_places.h"
#include "compress/matrix_parts.h"
#include "contains.h"
#include "model_logits.h"
#include "model_runner.h"
#include "models/convert/convert.h"
#include "shared_data.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::logits_of;

std::string golden_path(const std::string& name) { return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name; }
std::string shipped_path() { return std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-stories-6m.gguf"; }
// English text of some thousand tokens.
std::string some_text() { return testing::read_file(std::string(MILLRACE_SOURCE_DIR) + "/models/README.md"); }

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (fs::temp_directory_path() / "millrace_compress_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

CompressOptions options_for(const std::string& input, const std::string& output, std::vector<std::string> passes) {
  CompressOptions options;
  options.input = input;
  options.output = output;
  options.passes = std::move(passes);
  options.calibration = {.name = "README.md", .text = some_text(), .context = 64, .windows = 8};
  options.threads = 2;
  return options;
}

double sum_of_squares(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

std::string failure_of(const CompressOptions& options) {
  auto done = compress_model(options);
  EXPECT_FALSE(done.ok());
  EXPECT_FALSE(fs::exists(options.output)) << options.output;
  return done.ok() ? "" : done.error().message;
}

class CompressGolden : public ::testing::TestWithParam<std::string> {};

// Fused matrices, transposed ones, experts in a stack, tied heads; from GGUF files and from folders.
TEST_P(CompressGolden, GptqGivesAModelNearTheOriginal) {
  ScratchFolder scratch;
  for (const std::string& input : {golden_path(GetParam()), golden_path(GetParam()) + "/model.gguf"}) {
    const std::string output = scratch / (fs::path(input).filename().string() + ".gguf");
    auto done = compress_model(options_for(input, output, {"gptq:format=q8_0"}));
    ASSERT_TRUE(done.ok()) << done.error().message;
    double error = 0, rounded = 0;
    for (const CompressedMatrix& one : done->matrices) {
      EXPECT_TRUE(one.passes.at(0).second.action == "quantized" || one.calibration_rows == 0) << one.name;
      EXPECT_EQ(one.format, "q8_0") << one.name;
      error += one.output_error;
      rounded += one.rounded_output_error;
    }
    EXPECT_GE(done->matrices.size(), 8u);
    EXPECT_LT(error, rounded);
    EXPECT_GT(error, 0);
    const auto want = logits_of(input), got = logits_of(output);
    ASSERT_EQ(want.size(), got.size());
    EXPECT_LT(sum_of_squares(got, want), 0.02 * sum_of_squares(want, std::vector<float>(want.size())));
    EXPECT_NE(want, got);
  }
}

TEST_P(CompressGolden, WandaStoresZeros) {
  ScratchFolder scratch;
  const std::string output = scratch / "out.gguf";
  auto done = compress_model(options_for(golden_path(GetParam()), output, {"wanda:pattern=2:4"}));
  ASSERT_TRUE(done.ok()) << done.error().message;
  int64_t pruned = 0;
  for (const CompressedMatrix& one : done->matrices) {
    if (one.passes.at(0).second.action != "pruned") continue;
    EXPECT_NEAR(one.zeros, 0.5, 0.01) << one.name;
    ++pruned;
  }
  EXPECT_GE(pruned, 8);
  for (float logit : logits_of(output)) ASSERT_TRUE(std::isfinite(logit));
}

INSTANTIATE_TEST_SUITE_P(Models, CompressGolden,
                         ::testing::Values("llama", "qwen2_tied", "phi3", "gpt2", "mixtral", "qwen2moe", "gemma3"),
                         [](const auto& one) { return one.param; });

// Statistics by the matrices' names are those of the rows that the matrices read.
TEST_P(CompressGolden, MatricesThatShareStatisticsReadTheSameRows) {
  auto model = LanguageModel::load(golden_path(GetParam()), {.threads = 1});
  ASSERT_TRUE(model.ok());
  auto threads = std::make_shared<ThreadPool>(2);
  auto calibration = InputCalibration::create(*model, threads, {.name = "text", .text = some_text(), .windows = 3});
  ASSERT_TRUE(calibration.ok()) << calibration.error().message;
  const ArchSpec& spec = (*model)->parts().model->spec();
  StatisticsMap statistics;
  for (int32_t layer = 0; layer < spec.layer_count(); ++layer) {
    for (LinearKind kind : {LinearKind::q, LinearKind::k, LinearKind::v}) statistics[{layer, kind}];
    const int32_t expert = spec.layers[static_cast<size_t>(layer)].moe ? 1 : LinearId::kNoExpert;
    for (LinearKind kind : {LinearKind::up, LinearKind::gate}) statistics[{layer, kind, expert}];
  }
  ASSERT_TRUE((*calibration)->measure(kInputNorms, statistics, false, [](double) {}).ok());
  for (auto& [id, found] : statistics) {
    if (id.kind == LinearKind::gate && !spec.gated) continue;
    EXPECT_GT(found.rows, 0);
    const bool attention = id.kind == LinearKind::k || id.kind == LinearKind::v;
    const LinearKind first = attention ? LinearKind::q : id.kind == LinearKind::gate ? LinearKind::up : id.kind;
    EXPECT_EQ(found.squares, statistics.at(id.of(first)).squares);
    EXPECT_EQ(found.rows, statistics.at(id.of(first)).rows);
  }
}

TEST(LinearPlace, ReadsNames) {
  const auto place = [](std::string_view name) { return linear_place(name, false); };
  EXPECT_EQ(place("blk.12.attn_v.weight")->id, (LinearId{12, LinearKind::q}));
  EXPECT_EQ(place("blk.0.attn_qkv.weight")->id, (LinearId{0, LinearKind::q}));
  EXPECT_EQ(place("blk.0.attn_output.weight")->id, (LinearId{0, LinearKind::output}));
  EXPECT_EQ(place("blk.3.ffn_gate.weight")->id, (LinearId{3, LinearKind::up}));
  EXPECT_EQ(place("blk.3.ffn_down.7.weight")->id, (LinearId{3, LinearKind::down, 7}));
  EXPECT_EQ(place("blk.3.ffn_gate_shexp.weight")->id, (LinearId{3, LinearKind::up, LinearId::kShared}));
  EXPECT_TRUE(place("blk.3.ffn_up_exps.weight")->stacked);
  EXPECT_EQ(place("output.weight")->id, LinearId{});
  EXPECT_EQ(linear_place("token_embd.weight", true)->id, LinearId{});
  for (const char* other :
       {"token_embd.weight", "blk.3.ffn_gate_inp.weight", "blk.3.ffn_gate_inp_shexp.weight", "blk.3.attn_q.bias",
        "blk.3.attn_q_norm.weight", "blk.3.attn_norm.weight", "blk.x.attn_q.weight", "blk.-1.attn_q.weight",
        "blk.3attn_q.weight", "position_embd.weight", "blk.3.attn_q.7.weight"})
    EXPECT_FALSE(place(other)) << other;
}

// label(once): compares figures of whole compressions, whose code other cases run too
TEST(CompressModel, TheShippedModelsOutputsAreNearerThanThoseOfRounding) {
  ScratchFolder scratch;
  CompressOptions options = options_for(shipped_path(), scratch / "a.gguf", {"gptq"});
  options.calibration.context = 256;
  options.table = "same";
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->matrices.size(), 6u * 7 + 1);
  for (const CompressedMatrix& one : done->matrices) {
    EXPECT_LT(one.output_error, 0.9 * one.rounded_output_error) << one.name;
    EXPECT_GT(one.output_error, 0) << one.name;
  }
  // The same levels in the same bytes as plain rounding takes.
  ThreadPool pool(2);
  ASSERT_TRUE(convert_model({shipped_path(), scratch / "plain.gguf", "q4_0", "", false, {}}, pool).ok());
  auto ours = open_model_files(scratch / "a.gguf"), plain = open_model_files(scratch / "plain.gguf");
  ASSERT_TRUE(ours.ok() && plain.ok());
  ASSERT_EQ(ours->tensors.size(), plain->tensors.size());
  for (size_t i = 0; i < plain->tensors.size(); ++i) {
    EXPECT_EQ(ours->tensors[i].name, plain->tensors[i].name);
    EXPECT_EQ(ours->tensors[i].tensor.format, plain->tensors[i].tensor.format);
  }
  EXPECT_EQ((*ours->config)["millrace.compress.passes"], nlohmann::json::array({"gptq"}));
  EXPECT_EQ((*ours->config)["millrace.compress.calibration_xxh3_128"], done->calibration_hash);
  EXPECT_EQ((*ours->config)["millrace.compress.calibration_tokens"], 8 * 256);
  EXPECT_EQ(done->calibration_hash.size(), 32u);
}

// Runs with the smallest budget that suffices, to 4 MB.
Result<CompressReport> compress_in_little_memory(CompressOptions options) {
  for (int64_t extra = 16; extra < 256; extra += 4) {
    options.memory = program_memory() + (extra << 20);
    auto done = compress_model(options);
    if (done.ok() || done.error().kind != ErrorKind::resource) return done;
  }
  return Error::internal("no budget suffices");
}

// label(once): compresses the shipped model several times; smaller models do the same
TEST(CompressModel, NeitherThreadsNorMemoryChangeABit) {
  ScratchFolder scratch;
  std::string first;
  for (int threads : {1, 3}) {
    for (bool little : {false, true}) {
#ifdef MILLRACE_SANITIZED
      if (little != (threads == 3)) continue;  // half of the runs, which take a minute there
#endif
      const std::string output = scratch / fmt::format("{}_{}.gguf", threads, little);
      CompressOptions options =
          options_for(shipped_path(), output, {"wanda:sparsity=0.25", "gptq:format=q4_0,order=activation"});
      options.threads = threads;
      options.calibration.windows = 3;
      auto done = little ? compress_in_little_memory(options) : compress_model(options);
      ASSERT_TRUE(done.ok()) << done.error().message;
      EXPECT_EQ(done->ranges > 1, little) << done->ranges;
      const std::string bytes = testing::read_file(output);
      if (first.empty()) first = bytes;
      EXPECT_TRUE(bytes == first) << threads << " threads, " << done->ranges << " ranges";
    }
  }
}

// With a budget below the model and its output, weights, residual streams and finished tensors are on the disk.
// label(once): compresses the shipped model several times; smaller models do the same
TEST(CompressModel, ABudgetSmallerThanTheModelChangesNoByte) {
  for (const std::vector<std::string>& passes :
       {std::vector<std::string>{"outliers", "gptq:format=q4_0"}, std::vector<std::string>{"llm_mq:bits=4.5"}}) {
    ScratchFolder scratch;
    const std::string all = scratch / "all.gguf", little = scratch / "little.gguf";
    CompressOptions options = options_for(shipped_path(), all, passes);
    options.calibration.windows = 2;
    options.calibration.held_out = 0.5;
    auto want = compress_model(options);
    ASSERT_TRUE(want.ok()) << want.error().message;
    options.output = little;
    auto got = compress_in_little_memory(options);
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_TRUE(testing::read_file(little) == testing::read_file(all)) << passes.front();
    EXPECT_GT(got->ranges, want->ranges);
    ASSERT_EQ(got->matrices.size(), want->matrices.size());
    for (size_t i = 0; i < want->matrices.size(); ++i)
      EXPECT_EQ(got->matrices[i].held_out_error, want->matrices[i].held_out_error) << want->matrices[i].name;
    const auto peak = [](const CompressReport& report, const std::string& name) {
      for (const MemoryAccount& one : report.memory)
        if (one.name == name) return one.peak;
      return int64_t{0};
    };
    EXPECT_LT(peak(*got, "weights"), peak(*want, "weights") * 3 / 4);
    EXPECT_LT(peak(*got, "output"), peak(*want, "output") / 2);
    EXPECT_EQ(peak(*got, "residual streams"), 0);
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(fs::path(all).parent_path())) files += entry.exists();
    EXPECT_EQ(files, 2u);  // nothing but the outputs
  }
}

// The least budget is set by the matrix whose pass takes most, which the message of a smaller one names.
// label(once): solves the largest matrix that fits
TEST(CompressModel, TheLargestMatrixSetsTheLeastBudget) {
  ScratchFolder scratch;
  CompressOptions options = options_for(shipped_path(), scratch / "out.gguf", {"gptq:format=q4_0"});
  options.calibration.windows = 2;
  std::string refused;
  for (int64_t extra = 2; extra < 128 && refused.empty(); extra += 2) {
    options.memory = program_memory() + (extra << 20);
    auto done = compress_model(options);
    ASSERT_FALSE(done.ok()) << "a budget that is refused for one matrix was expected, at " << extra << " MB";
    ASSERT_EQ(done.error().kind, ErrorKind::resource) << done.error().message;
    if (done.error().message.find("one matrix") != std::string::npos) refused = done.error().message;
  }
  EXPECT_CONTAINS(refused,
                  "raise --memory; the largest matrix, token_embd.weight with 4096 x 256 weights, takes as much");
  for (const bool first : {true, false}) {
    options.memory = int64_t{1} << 30;
    options.passes = {"gptq:format=q4_0"};
    if (!first) options.passes.insert(options.passes.begin(), "wanda");
    auto done = compress_model(options);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const auto at = std::ranges::find(done->memory, "one matrix", &MemoryAccount::name);
    ASSERT_NE(at, done->memory.end());
    const int64_t cols = 256, rows = 4096, row_bytes = cols / 32 * 34;  // the table stays at q8_0
    // Floats of the values, the original and the change, two encodings; the factor, and the figures.
    int64_t bytes = rows * (3 * 4 * cols + 2 * row_bytes) + 2 * SecondMoments::bytes(cols);
    bytes += SecondMoments::scratch_bytes(cols);
    if (!first) bytes += rows * cols + changed_moments_bytes(cols);  // what is pruned
    EXPECT_EQ(at->peak, bytes);
    options.force = true;
  }
}

// A range continues where the one before it has ended, and gets the inputs that the whole model gives.
TEST(CompressModel, RangesContinueTheResidualStreams) {
  auto loaded = LanguageModel::load(golden_path("llama"), {.threads = 1});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const std::shared_ptr<const LanguageModel> model = *loaded;
  const auto layers = static_cast<int32_t>(model->parts().model->spec().layer_count());
  ASSERT_GE(layers, 2);
  const auto measure = [&](InputCalibration& calibration, LinearId id, bool more) {
    StatisticsMap statistics;
    statistics[id].id = id;
    EXPECT_TRUE(calibration.measure(kInputNorms, statistics, more, [](double) {}).ok());
    return statistics.at(id).squares;
  };
  for (const int64_t in_memory : {int64_t{0}, int64_t{1} << 30}) {
    const auto make = [&] {
      return InputCalibration::create(
          model, std::make_shared<ThreadPool>(1),
          {.name = "text", .text = some_text(), .context = 32, .windows = 3, .stream_bytes = in_memory});
    };
    auto ranges = make();
    ASSERT_TRUE(ranges.ok());
    for (int turn : {0, 1})  // the second turn begins again
      for (int32_t layer = 0; layer <= layers; ++layer) {
        const LinearId id = layer < layers ? LinearId{.layer = layer, .kind = LinearKind::q} : LinearId{};
        auto whole = make();
        ASSERT_TRUE(whole.ok());
        EXPECT_EQ(measure(**ranges, id, layer < layers), measure(**whole, id, false)) << layer << " " << turn;
      }
  }
}

// A compressed file as input: its own passes stay in the list.
TEST(CompressModel, PassesAddUpInTheFile) {
  ScratchFolder scratch;
  const std::string sparse = scratch / "sparse.gguf", both = scratch / "both.gguf";
  ASSERT_TRUE(compress_model(options_for(golden_path("llama/model.gguf"), sparse, {"wanda:sparsity=0.5"})).ok());
  ASSERT_TRUE(compress_model(options_for(sparse, both, {"gptq:format=q5_1"})).ok());
  auto files = open_model_files(both);
  ASSERT_TRUE(files.ok());
  EXPECT_EQ((*files->config)["millrace.compress.passes"],
            nlohmann::json::array({"wanda:sparsity=0.5", "gptq:format=q5_1"}));
}

TEST(CompressModel, SaysWhatIsWrong) {
  ScratchFolder scratch;
  const std::string out = scratch / "out.gguf", llama = golden_path("llama");
  CompressOptions options = options_for(llama, out, {"gptq"});
  options.calibration.text = "short";
  EXPECT_CONTAINS(failure_of(options), "README.md: ");
  EXPECT_CONTAINS(failure_of(options), " tokens do not fill a window of 64; use a longer text or a smaller --context");
  options.calibration.name.clear();
  EXPECT_EQ(failure_of(options), "--pass gptq: needs a calibration text; give one with --calibrate");
  options = options_for(llama, out, {});
  EXPECT_EQ(failure_of(options), "--pass: is missing; give at least one, such as gptq:format=q4_0");
  options = options_for(llama, out, {"gptq", "wanda"});
  EXPECT_EQ(failure_of(options), "--pass gptq: fixes the levels of the output, so it must be the last one");
  options = options_for(llama, scratch / "folder", {"gptq"});
  EXPECT_EQ(failure_of(options), (scratch / "folder") + ": the output is a GGUF file; its name must end in .gguf");
  options = options_for(llama, out, {"gptq"});
  options.calibration.context = 4096;
  options.calibration.text = "abc";
  EXPECT_CONTAINS(failure_of(options), "do not fill a window of 4096");
  options = options_for(shipped_path(), out, {"gptq"});
  options.memory = program_memory() + (int64_t{14} << 20);
  const std::string message = failure_of(options);
  EXPECT_CONTAINS(message, "memory: ");
  EXPECT_CONTAINS(message, "in use: ");
}

}  // namespace
}  // namespace millrace
