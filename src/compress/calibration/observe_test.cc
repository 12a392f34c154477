// Importance matrices of models: observed sums are those of the inputs, rounding by them lowers the errors of outputs,
// and what does not fit is refused.
#include "compress/calibration/observe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/ordered_json.h"
#include "contains.h"
#include "loader/importance_file.h"
#include "models/convert/convert.h"
#include "shared_data.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string observed_model(const std::string& name) { return std::string(MILLRACE_SOURCE_DIR) + "/" + name; }

class Observed : public ::testing::Test {
 protected:
  Observed() {
    std::string pattern = (fs::temp_directory_path() / "millrace_observe_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Observed() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string path(const std::string& name) const { return folder_ / name; }

  CompressOptions observe_options(const std::string& model, const std::string& output, int threads = 2) const {
    CompressOptions options;
    options.input = observed_model(model);
    options.observe = path(output);
    options.calibration = {.name = "some/README.md",
                           .text = testing::read_file(observed_model("models/README.md")),
                           .context = 64,
                           .windows = 6};
    options.threads = threads;
    return options;
  }
  Result<ConvertReport> convert(const std::string& model, const std::string& output, const std::string& format,
                                const std::string& importance) {
    ConvertOptions options;
    options.input = observed_model(model);
    options.output = path(output);
    options.format = format;
    options.importance = importance.empty() ? "" : path(importance);
    options.force = true;
    return convert_model(options, pool_);
  }
  std::vector<float> values(const ModelFiles& files, const std::string& name) const {
    const StoredTensor* stored = files.find(name);
    std::vector<float> out(stored ? static_cast<size_t>(stored->tensor.values()) : 0);
    if (stored) stored->tensor.format->decode(stored->tensor.data, out.data(), std::ssize(out));
    return out;
  }

  fs::path folder_;
  ThreadPool pool_{2};
};

constexpr const char* kObservedModel = "models/millrace-stories-6m.gguf";

// label(once): compares figures of whole compressions, whose code other cases run too
TEST_F(Observed, RoundingByImportanceLowersTheErrorsOfOutputs) {
  auto done = observe_model(observe_options(kObservedModel, "a.imatrix"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->matrices, 6 * 7 + 1);
  EXPECT_EQ(done->tokens, 6 * 64);
  auto importance = read_importance_file(path("a.imatrix"));
  ASSERT_TRUE(importance.ok()) << importance.error().message;
  EXPECT_EQ(importance->chunks, 6);
  EXPECT_EQ(importance->chunk_size, 64);
  EXPECT_EQ(importance->datasets, std::vector<std::string>{"README.md"});
  auto original = open_model_files(observed_model(kObservedModel));
  ASSERT_TRUE(original.ok());
  for (const char* format : {"q4_k", "q2_k", "iq4_nl", "q4_0"}) {
    ASSERT_TRUE(convert(kObservedModel, "plain.gguf", format, "").ok());
    auto report = convert(kObservedModel, "weighted.gguf", format, "a.imatrix");
    ASSERT_TRUE(report.ok()) << report.error().message;
    auto plain = open_model_files(path("plain.gguf")), weighted = open_model_files(path("weighted.gguf"));
    ASSERT_TRUE(plain.ok() && weighted.ok());
    EXPECT_EQ((*weighted->config)["quantize.imatrix.file"], "a.imatrix");
    EXPECT_EQ((*weighted->config)["quantize.imatrix.dataset"], "README.md");
    EXPECT_EQ((*weighted->config)["quantize.imatrix.entries_count"], 43);
    EXPECT_EQ((*weighted->config)["quantize.imatrix.chunks_count"], 6);
    double before = 0, after = 0;
    for (const auto& [name, entry] : importance->entries) {
      const StoredTensor* stored = weighted->find(name);
      ASSERT_TRUE(stored);
      ASSERT_EQ(stored->tensor.format, plain->find(name)->tensor.format);
      const auto exact = values(*original, name), a = values(*plain, name), b = values(*weighted, name);
      double plainly = 0, by_weights = 0, all = 0;
      for (size_t i = 0; i < exact.size(); ++i) {
        const double weight = entry.sums[i % entry.sums.size()];
        plainly += weight * std::pow(double{a[i]} - exact[i], 2);
        by_weights += weight * std::pow(double{b[i]} - exact[i], 2);
        all += weight * std::pow(double{exact[i]}, 2);
      }
      EXPECT_LE(by_weights, plainly) << name << " " << format;
      before += plainly / all;
      after += by_weights / all;
    }
    EXPECT_LT(after, 0.97 * before) << format;
  }
}

TEST_F(Observed, NeitherThreadsNorTheKindOfFileChangeTheRounding) {
  std::string first;
  for (const char* output : {"a.imatrix", "b.dat"}) {
    ASSERT_TRUE(observe_model(observe_options(kObservedModel, output, output[0] == 'a' ? 1 : 3)).ok());
    ASSERT_TRUE(convert(kObservedModel, "out.gguf", "q4_0", output).ok());
    auto files = open_model_files(path("out.gguf"));
    ASSERT_TRUE(files.ok());
    const StoredTensor* stored = files->find("blk.2.ffn_down.weight");
    const std::string bytes(reinterpret_cast<const char*>(stored->tensor.data),
                            static_cast<size_t>(stored->tensor.bytes));
    if (first.empty()) first = bytes;
    // The older kind rounds the sums once more.
    int64_t different = 0;
    for (size_t i = 0; i < bytes.size(); ++i) different += bytes[i] != first[i];
    EXPECT_LT(different, std::ssize(bytes) / 500) << output;
  }
  ASSERT_TRUE(observe_model(observe_options(kObservedModel, "c.imatrix", 3)).ok());
  EXPECT_TRUE(testing::read_file(path("a.imatrix")) == testing::read_file(path("c.imatrix")));
}

// Each expert has the tokens that chose it.
TEST_F(Observed, ExpertsAreCounted) {
  const std::string model = "tests/golden/mixtral/model.gguf";
  ASSERT_TRUE(observe_model(observe_options(model, "a.imatrix")).ok());
  auto file = read_importance_file(path("a.imatrix"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const ImportanceEntry& up = file->entries.at("blk.0.ffn_up_exps.weight");
  double chosen = 0;
  for (float count : up.counts) chosen += count;
  EXPECT_GT(std::ssize(up.counts), 1);
  EXPECT_EQ(chosen, 2 * 6 * 64);  // two of each token
  auto report = convert(model, "out.gguf", "q4_0", "a.imatrix");
  ASSERT_TRUE(report.ok()) << report.error().message;
}

TEST_F(Observed, SaysWhatIsWrong) {
  CompressOptions options = observe_options(kObservedModel, "a.imatrix");
  options.calibration.name.clear();
  auto no_text = observe_model(options);
  ASSERT_FALSE(no_text.ok());
  EXPECT_EQ(no_text.error().message, "--observe: needs a text whose inputs it can observe; give one with --calibrate");
  ASSERT_TRUE(observe_model(observe_options(kObservedModel, "a.imatrix")).ok());
  EXPECT_FALSE(observe_model(observe_options(kObservedModel, "a.imatrix")).ok());  // it exists
  const auto failure = [&](const std::string& model, const std::string& format) {
    auto done = convert(model, "out.gguf", format, "a.imatrix");
    EXPECT_FALSE(done.ok());
    return done.ok() ? "" : done.error().message;
  };
  EXPECT_CONTAINS(failure(kObservedModel, "q8_0"),
                  "it weights the rounding to formats of 2 to 6 bits in a GGUF file; give --format q4_k or another");
  EXPECT_CONTAINS(failure(kObservedModel, ""), "it weights the rounding to formats of 2 to 6 bits");
  EXPECT_CONTAINS(failure(kObservedModel, "iq2_xs"), "a.imatrix: rounding to iq2_xs uses no weights; it weights");
  EXPECT_CONTAINS(failure(kObservedModel, "iq2_xs"), "or another of them: q4_0, ");
  EXPECT_CONTAINS(failure("tests/golden/llama/model.gguf", "q4_0"), "the file belongs to another model");
}

}  // namespace
}  // namespace millrace
