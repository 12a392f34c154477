// Weights by neuron: in exact mode the same streams bit for bit as with all weights in memory, whatever the memory, the
// window and the batch; in predicted mode a stream has the same bits alone and in a batch; neurons that cannot be read
// end the streams of that step.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "copied_models.h"
#include "engine/engine_core.h"
#include "models/convert/convert.h"
#include "models/neurons/neuron_test_file.h"
#include "models/weight_source.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class NeuronSources : public CopiedModels {
 protected:
  // A copy of the model, converted if `format` names a format, and its neuron file.
  void use(const std::string& path, int64_t rank, const std::string& format = "") {
    model_ = (folder_ / fmt::format("{}.gguf", count_++)).string();
    neurons_ = model_ + ".neurons";
    const fs::path from = fs::path(MILLRACE_SOURCE_DIR) / path;
    ThreadPool pool(1);
    if (format.empty())
      fs::copy_file(from, model_);
    else
      ASSERT_TRUE(convert_model({.input = from.string(), .output = model_, .format = format}, pool).ok()) << format;
    testing::write_test_neurons(model_, neurons_, rank);
  }
  Result<std::shared_ptr<const LanguageModel>> load(const std::string& weights) {
    LoadOptions options;
    options.threads = 2;
    options.context = 128;
    options.weights = weights;
    return LanguageModel::load(model_, options);
  }
  std::string source(const std::string& name, const std::string& options) const {
    return fmt::format("{}:file={}{}", name, neurons_, options.empty() ? "" : "," + options);
  }
  static Request prompt(RequestId id, int64_t tokens) {
    Request request;
    for (TokenId i = 0; i < tokens; ++i) request.prompt.push_back(1 + (i * 7 + static_cast<TokenId>(id)) % 40);
    request.max_tokens = 6;
    request.ignore_eos = true;
    request.sampling.logprobs = 2;
    return request;
  }
  // Tokens and logprobs of these streams, which run together.
  struct Stream {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    bool operator==(const Stream&) const = default;
  };
  static Result<std::vector<Stream>> run(EngineCore& core, const std::vector<RequestId>& ids) {
    std::vector<Stream> out(8);
    for (RequestId id : ids) MILLRACE_TRY_VOID(core.add(id, prompt(id, 20)));
    std::vector<TokenEvent> events;
    while (!core.idle()) core.step(events);
    for (const TokenEvent& event : events) {
      if (!event.error.message.empty()) return event.error;
      Stream& to = out[static_cast<size_t>(event.request)];
      to.tokens.push_back(event.token);
      to.logprobs.push_back(event.logprob.logprob);
    }
    return out;
  }
  Result<std::vector<Stream>> streams(const std::shared_ptr<const LanguageModel>& model,
                                      const std::vector<RequestId>& ids) {
    MILLRACE_TRY(auto core,
                 EngineCore::create(model, {.threads = 2, .context = 128, .max_streams = 4, .batch_tokens = 16}));
    return run(*core, ids);
  }
  // The least memory that the source takes, found by its own error.
  int64_t least_memory(const std::string& name, const std::string& options) {
    int64_t low = 1, high = int64_t{1} << 27;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (load(source(name, fmt::format("{}memory={}", options, middle))).ok())
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  std::string model_, neurons_;
};

// A model, and the format that it is converted to; "": its own, f32 and q8_0.
struct NeuronModel {
  const char *path, *format;
};
constexpr const char* kGoldenRelu = "tests/golden/llama_relu/model.gguf";
constexpr const char* kLabRelu = "models/millrace-lab-relu-2m.gguf";
constexpr NeuronModel kModels[] = {{kGoldenRelu, ""}, {kGoldenRelu, "f16"}, {kLabRelu, ""}};

// Q8_0 has the same bits with every kernel table, floats with those of vectors (models/neurons/neuron_mlp.h).
bool same_bits(const NeuronModel& model) {
  return std::string_view(model.path).starts_with("models/") ||
         make_kernel_table(*select_isa()).find_matmul(find_format("f32"))->row_tile > 1;
}

TEST_F(NeuronSources, ExactModeGivesTheBitsOfResidentWeights) {
  for (const NeuronModel& one : kModels) {
    if (!same_bits(one)) continue;
    SCOPED_TRACE(fmt::format("{} {}", one.path, one.format));
    use(one.path, 0, one.format);
    auto plain = load("resident");
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    const auto want = streams(*plain, {1, 2, 3});
    ASSERT_TRUE(want.ok());
    ASSERT_EQ((*want)[2].tokens.size(), 6u);
    const int64_t least = least_memory("llm_in_flash", "");
    EXPECT_EQ(least, least_memory("powerinfer", ""));
    for (const std::string name : {"llm_in_flash", "powerinfer"}) {
      for (const int64_t extra : {int64_t{0}, int64_t{1} << 14, int64_t{1} << 26}) {
        for (const char* more : {"", ",depth=1"}) {
          const std::string text = source(name, fmt::format("memory={}{}", least + extra, more));
          auto model = load(text);
          ASSERT_TRUE(model.ok()) << text << ": " << model.error().message;
          const auto got = streams(*model, {1, 2, 3});
          ASSERT_TRUE(got.ok()) << text << ": " << got.error().message;
          EXPECT_TRUE(*got == *want) << text;
          EXPECT_TRUE((*streams(*model, {2}))[2] == (*want)[2]) << text << ": alone";
          const WeightFigures figures = *(*model)->parts().model->source()->figures();
          EXPECT_LE(figures.kept_bytes + figures.cache_bytes, least + extra) << text;
          EXPECT_LT(figures.neurons_run, figures.neurons);
          EXPECT_GT(figures.neurons_run, 0);
          if (*more != '\0') continue;  // fewer reads in flight leave room for more neurons
          // The golden model's f16 neurons are half as large as those in f32: 16 KiB more hold all of them.
          const bool all_fit = extra > (*one.format != '\0' ? 0 : int64_t{1} << 20);
          EXPECT_EQ(figures.bytes_read == 0, name == "powerinfer" && all_fit) << text;
        }
      }
    }
  }
}

TEST_F(NeuronSources, PredictedNeuronsDoNotDependOnTheBatchOrTheMemory) {
  for (const NeuronModel& one : kModels) {
    SCOPED_TRACE(fmt::format("{} {}", one.path, one.format));
    use(one.path, 4, one.format);
    const int64_t least = least_memory("llm_in_flash", "predictor=file,");
    auto all = load(source("powerinfer", "predictor=file"));
    ASSERT_TRUE(all.ok()) << all.error().message;
    const auto want = streams(*all, {1, 2, 3});
    ASSERT_TRUE(want.ok()) << want.error().message;
    EXPECT_TRUE((*streams(*all, {3}))[3] == (*want)[3]);
    for (const std::string name : {"llm_in_flash", "powerinfer"}) {
      for (const int64_t extra : {int64_t{0}, int64_t{1} << 15}) {
        auto model = load(source(name, fmt::format("predictor=file,memory={}", least + extra)));
        ASSERT_TRUE(model.ok()) << model.error().message;
        const auto got = streams(*model, {1, 2, 3});
        ASSERT_TRUE(got.ok()) << got.error().message;
        EXPECT_TRUE(*got == *want) << name << " " << extra;
        EXPECT_TRUE((*streams(*model, {1}))[1] == (*want)[1]) << name << " " << extra;
      }
    }
    auto plain = load("resident");
    ASSERT_TRUE(plain.ok());
    EXPECT_FALSE(*streams(*plain, {1, 2, 3}) == *want) << "predictions of a test file are wrong";
  }
}

// The file is cut off while an engine runs, and whole again later.
TEST_F(NeuronSources, NeuronsThatCannotBeReadEndTheStreamsOfTheStep) {
  use(kLabRelu, 0);
  auto model = load(source("llm_in_flash", fmt::format("memory={}", least_memory("llm_in_flash", ""))));
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto core = EngineCore::create(*model, {.threads = 2, .context = 128, .max_streams = 4, .batch_tokens = 16});
  ASSERT_TRUE(core.ok()) << core.error().message;
  const auto want = run(**core, {1});
  ASSERT_TRUE(want.ok()) << want.error().message;
  std::ifstream in(neurons_, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto write = [&](const std::string& text) {
    std::fstream(neurons_, std::ios::binary | std::ios::in | std::ios::out).write(text.data(), std::ssize(text));
  };
  fs::resize_file(neurons_, 8192);
  const auto cut = run(**core, {2});
  ASSERT_FALSE(cut.ok());
  EXPECT_NE(cut.error().message.find("cannot read neurons"), std::string::npos) << cut.error().message;
  std::string damaged = bytes;
  for (size_t at = bytes.size() / 2; at < damaged.size(); at += 64) damaged[at] ^= 1;
  write(damaged);
  const auto wrong = run(**core, {3});
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("is damaged"), std::string::npos) << wrong.error().message;
  write(bytes);
  const auto again = run(**core, {1});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(*again == *want);
}

TEST_F(NeuronSources, SaysWhatIsWrong) {
  use(kGoldenRelu, 0);
  const auto contains = [&](const std::string& weights, const std::string& part) {
    auto loaded = load(weights);
    ASSERT_FALSE(loaded.ok()) << weights;
    EXPECT_NE(loaded.error().message.find(part), std::string::npos) << loaded.error().message;
  };
  contains("llm_in_flash", "file: the neuron file is missing; millrace offload-train");
  contains("powerinfer:file=/nowhere/none", "cannot open");
  contains(source("llm_in_flash", "predictor=file"), "has no predictors; millrace offload-train writes them");
  contains(source("llm_in_flash", "predictor=luck"), "predictor: must be none or file, got luck");
  contains(source("llm_in_flash", "memory=1000"), "raise the limit, or use weights=stream");
  contains("llm_in_flash:file=" + model_, "is not a neuron file");
  const std::string neurons = neurons_;
  use(kLabRelu, 0);
  contains("powerinfer:file=" + neurons, "was made from a model with 2 layers, this one has 4");
}

}  // namespace
}  // namespace millrace
