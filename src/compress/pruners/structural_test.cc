// Passes that make smaller models: which parts go, against plain definitions through the engine's own passes, and that
// what stays is what it was.
#include <cmath>
#include <cstring>
#include <numeric>

#include "compress/plan_edits.h"
#include "compress/pruners/pruner_test.h"
#include "contains.h"
#include "model_runner.h"
#include "models/convert/conversion.h"
#include "short_compression.h"

namespace millrace {
namespace {

using namespace testing;

std::vector<float> next_logits(const std::string& path) {
  auto runner = TestRunner::load(path, {});
  EXPECT_TRUE(runner.ok()) << path << ": " << (runner.ok() ? "" : runner.error().message);
  return runner.ok() ? (*runner)->logits({5, 17, 40, 3, 99, 21, 64}) : std::vector<float>();
}

double figure_of(const PassRow& row, const std::string& name) {
  for (const auto& [key, value] : row.figures)
    if (key == name) return value;
  ADD_FAILURE() << name;
  return 0;
}

// The residual stream of every token before every layer and after the last.
class ResidualStream final : public ForwardObserver {
 public:
  void residual(int64_t layer, const float* rows, int64_t tokens, int64_t width) override {
    if (std::ssize(layers) <= layer) layers.resize(static_cast<size_t>(layer + 1));
    auto& to = layers[static_cast<size_t>(layer)];
    to.insert(to.end(), rows, rows + tokens * width);
  }
  std::vector<std::vector<float>> layers;
};

ResidualStream stream_of(const std::string& path, const CompressOptions& options) {
  ResidualStream out;
  auto model = LanguageModel::load(path, {.threads = 1});
  EXPECT_TRUE(model.ok());
  auto calibration = InputCalibration::create(*model, std::make_shared<ThreadPool>(1), options.calibration);
  EXPECT_TRUE(calibration.ok());
  const int64_t layers = (*model)->parts().model->spec().layer_count();
  EXPECT_TRUE((*calibration)->run(out, {.to = layers}, true, [] { return Result<void>(); }).ok());
  return out;
}

TEST(ShortGpt, DropsTheLayersOfLeastInfluence) {
  const std::string model = std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-stories-6m.gguf";
  const ScratchModel out;
  CompressOptions options = short_compression(model, out.path(), "shortgpt:drop=2");
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const ResidualStream stream = stream_of(model, options);
  const size_t layers = done->structure.size(), width = 256;
  ASSERT_EQ(stream.layers.size(), layers + 1);
  std::vector<double> influence;
  for (size_t l = 0; l < layers; ++l) {
    const auto &a = stream.layers[l], &b = stream.layers[l + 1];
    ASSERT_EQ(a.size(), b.size());
    ASSERT_EQ(a.size(), 6 * 64 * width);
    double sum = 0;
    for (size_t t = 0; t < a.size(); t += width) {
      const auto dot = [&](const auto& x, const auto& y) {
        return std::inner_product(x.begin() + static_cast<std::ptrdiff_t>(t),
                                  x.begin() + static_cast<std::ptrdiff_t>(t + width),
                                  y.begin() + static_cast<std::ptrdiff_t>(t), 0.0);
      };
      sum += dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
    }
    influence.push_back(1 - sum / static_cast<double>(a.size() / width));
    EXPECT_NEAR(figure_of(done->structure[l].second, "block_influence"), influence.back(), 1e-9) << l;
  }
  std::vector<double> sorted = influence;
  std::ranges::sort(sorted);
  EXPECT_LT(sorted.front(), sorted.back());
  for (size_t l = 0; l < layers; ++l)
    EXPECT_EQ(done->structure[l].second.action, influence[l] <= sorted[1] ? "dropped" : "kept") << l;
  EXPECT_LT(done->output_bytes, done->input_bytes);
  // The layers before the first one that went compute what they did, and so does the next one from their output.
  auto files = open_model_files(out.path());
  ASSERT_TRUE(files.ok());
  auto loaded = LanguageModel::load(out.path(), {.threads = 1});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ((*loaded)->parts().model->spec().layer_count(), static_cast<int64_t>(layers) - 2);
  const ResidualStream after = stream_of(out.path(), options);
  for (size_t l = 0; l < layers && done->structure[l].second.action == "kept"; ++l)
    EXPECT_EQ(after.layers[l + 1], stream.layers[l + 1]) << l;
}

// The tensors of the layers that stay are those of the input, bit for bit.
TEST(ShortGpt, KeptLayersAreCopied) {
  const std::string model = golden_gguf("llama");
  const ScratchModel out;
  auto done = compress_model(short_compression(model, out.path(), "shortgpt:drop=1"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  auto before = open_model_files(model), after = open_model_files(out.path());
  ASSERT_TRUE(before.ok() && after.ok());
  int64_t next = 0, compared = 0;
  for (size_t l = 0; l < done->structure.size(); ++l) {
    if (done->structure[l].second.action == "dropped") continue;
    const std::string from = fmt::format("blk.{}.", l), to = fmt::format("blk.{}.", next++);
    for (const StoredTensor& tensor : before->tensors) {
      if (!tensor.name.starts_with(from)) continue;
      const StoredTensor* copy = after->find(to + tensor.name.substr(from.size()));
      ASSERT_NE(copy, nullptr) << tensor.name;
      ASSERT_EQ(copy->tensor.bytes, tensor.tensor.bytes);
      EXPECT_EQ(std::memcmp(copy->tensor.data, tensor.tensor.data, static_cast<size_t>(tensor.tensor.bytes)), 0);
      ++compared;
    }
  }
  EXPECT_GE(compared, 9 * next);
  EXPECT_EQ(after->find(fmt::format("blk.{}.attn_q.weight", next)), nullptr);
}

TEST(ShortGpt, DroppingNothingChangesNothing) {
  for (const std::string model : {"llama", "mixtral", "gpt2"}) {
    const ScratchModel out;
    auto done = compress_model(short_compression(golden_gguf(model), out.path(), "shortgpt:drop=0"));
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(next_logits(out.path()), next_logits(golden_gguf(model))) << model;
  }
}

TEST(Structural, SaysWhatIsWrong) {
  const ScratchModel out;
  const auto failure = [&](const std::string& model, std::vector<std::string> passes) {
    CompressOptions options = short_compression(golden_gguf(model), out.path(), "");
    options.passes = std::move(passes);
    auto done = compress_model(options);
    EXPECT_FALSE(done.ok());
    EXPECT_FALSE(std::filesystem::exists(out.path()));
    return done.ok() ? "" : done.error().message;
  };
  EXPECT_CONTAINS(failure("llama", {"shortgpt:drop=99"}), "--pass shortgpt: drop is 99, but the model has ");
  EXPECT_EQ(failure("llama", {"wanda", "shortgpt"}),
            "--pass shortgpt: makes another model, so it must be the only pass; compress its output in a second run");
  EXPECT_CONTAINS(failure("gemma3", {"shortgpt"}),
                  "its layers are of different kinds, so none of them can be left out");
  EXPECT_EQ(failure("llama", {"expert_sparsity"}), "--pass expert_sparsity: the model has no experts");
  EXPECT_CONTAINS(failure("mixtral", {"expert_sparsity:keep=1"}), "--pass expert_sparsity: keep must be ");
  EXPECT_EQ(failure("llama", {"ria:pattern=2:4,permute=true", "gptq"}),
            "--pass ria:pattern=2:4,permute=true: changes the order of the inputs, so it must be the last one");
}

// Of a mixture: what its routers read, and what its layers add to the residual stream.
struct ExpertCase {
  std::string model;
  int64_t keep;
};

class ExpertSparsity : public ::testing::TestWithParam<ExpertCase> {};

TEST_P(ExpertSparsity, KeepsAllExpertsExactly) {
  const std::string model = golden_gguf(GetParam().model);
  auto loaded = LanguageModel::load(model, {.threads = 1});
  ASSERT_TRUE(loaded.ok());
  const int64_t experts = (*loaded)->parts().model->spec().moe.experts;
  const ScratchModel out;
  auto done = compress_model(short_compression(model, out.path(), fmt::format("expert_sparsity:keep={}", experts)));
  ASSERT_TRUE(done.ok()) << done.error().message;
  for (const auto& [name, row] : done->structure) EXPECT_EQ(figure_of(row, "output_error"), 0) << name;
  EXPECT_EQ(next_logits(out.path()), next_logits(model));
}

// Every choice of experts of the first layer, as a file of its own whose first layer runs in the engine.
TEST_P(ExpertSparsity, TheChoiceIsTheBestOfAll) {
  const std::string model = golden_gguf(GetParam().model);
  const ScratchModel out;
  const CompressOptions options =
      short_compression(model, out.path(), fmt::format("expert_sparsity:keep={}", GetParam().keep));
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const ResidualStream full = stream_of(model, options);
  // Before the first mixture the streams are the same, so their difference after it is that of its outputs.
  const auto change = [&](const std::string& path) {
    const ResidualStream part = stream_of(path, options);
    EXPECT_EQ(part.layers[0], full.layers[0]);
    double sum = 0;
    for (size_t i = 0; i < full.layers[1].size(); ++i)
      sum += std::pow(double{part.layers[1][i]} - full.layers[1][i], 2);
    return sum;
  };
  const double best = change(out.path());
  auto loaded = LanguageModel::load(model, {.threads = 1});
  ASSERT_TRUE(loaded.ok());
  const auto experts = static_cast<size_t>((*loaded)->parts().model->spec().moe.experts);
  auto files = open_model_files(out.path());
  ASSERT_TRUE(files.ok());
  std::vector<uint8_t> chosen(experts);
  std::fill_n(chosen.begin(), GetParam().keep, 1);
  double least = 1e300, most = 0;
  do {
    std::vector<int32_t> kept;
    for (size_t e = 0; e < experts; ++e)
      if (chosen[e]) kept.push_back(static_cast<int32_t>(e));
    const ScratchModel file;
    auto input = open_conversion_input(model, "");
    ASSERT_TRUE(input.ok());
    ConvertReport report;
    auto plan = plan_conversion(*input, true, {}, report);
    ASSERT_TRUE(plan.ok());
    const std::vector<std::vector<int32_t>> all(input->spec.layers.size(), kept);
    ASSERT_TRUE(keep_experts(*plan, input->spec, report.architecture, all).ok());
    ThreadPool pool(1);
    for (const OutputTensor& tensor : plan->tensors)
      plan->writer.add_tensor(tensor.name, tensor.format, tensor.dims,
                              [&](uint8_t* to, int64_t) { return tensor.produce(to, pool); });
    ASSERT_TRUE(plan->writer.write(file.path()).ok());
    const double now = change(file.path());
    least = std::min(least, now);
    most = std::max(most, now);
  } while (std::ranges::prev_permutation(chosen).found);
  EXPECT_NEAR(best, least, 1e-4 * least);
  EXPECT_GT(most, 1.05 * least);
}

TEST_P(ExpertSparsity, ThreadsDoNotChangeABit) {
  std::string first;
  for (int threads : {1, 3}) {
    const ScratchModel out;
    CompressOptions options = short_compression(golden_gguf(GetParam().model), out.path(),
                                                fmt::format("expert_sparsity:keep={},tokens=100", GetParam().keep));
    options.threads = threads;
    ASSERT_TRUE(compress_model(options).ok());
    const std::string bytes = read_file(out.path());
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertSparsity, ::testing::Values(ExpertCase{"mixtral", 3}, ExpertCase{"qwen2moe", 3}),
                         [](const auto& one) { return one.param.model; });

std::vector<float> stored_values(const ModelFiles& files, const std::string& name) {
  const StoredTensor* tensor = files.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (!tensor) return {};
  std::vector<float> out(static_cast<size_t>(tensor->tensor.rows() * tensor->tensor.cols()));
  for (int64_t r = 0; r < tensor->tensor.rows(); ++r)
    tensor->tensor.format->decode(tensor->tensor.data + r * tensor->tensor.format->row_bytes(tensor->tensor.cols()),
                                  out.data() + r * tensor->tensor.cols(), tensor->tensor.cols());
  return out;
}

struct PlainColumns {
  std::vector<int64_t> left;
  std::vector<std::vector<double>> weights;  // [rows, left]
};

// Tries every column that is left, with the best answer of all others from the inverse of what is left of H.
PlainColumns remove_columns(const std::vector<float>& values, size_t rows, const Square& h, size_t count) {
  PlainColumns out;
  out.left.resize(h.size());
  std::iota(out.left.begin(), out.left.end(), 0);
  for (size_t r = 0; r < rows; ++r)
    out.weights.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(r * h.size()),
                             values.begin() + static_cast<std::ptrdiff_t>((r + 1) * h.size()));
  for (; count > 0; --count) {
    const size_t n = out.left.size();
    Square inner(n, std::vector<double>(n));
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j)
        inner[i][j] = h[static_cast<size_t>(out.left[i])][static_cast<size_t>(out.left[j])];
    const Square inverse = inverse_of(inner);
    size_t best = 0;
    double least = 1e300;
    for (size_t j = 0; j < n; ++j) {
      double cost = 0;
      for (const auto& row : out.weights) cost += row[j] * row[j] / inverse[j][j];
      if (cost >= least) continue;
      least = cost;
      best = j;
    }
    const auto gone = static_cast<std::ptrdiff_t>(best);
    for (auto& row : out.weights) {
      const double factor = row[best] / inverse[best][best];
      for (size_t k = 0; k < n; ++k) row[k] -= factor * inverse[best][k];
      row.erase(row.begin() + gone);
    }
    out.left.erase(out.left.begin() + gone);
  }
  return out;
}

TEST(ZipLm, RemovesTheCheapestColumnsAndTheOthersMakeUpForThem) {
  const std::string model = golden_gguf("llama");
  const ScratchModel out;
  const CompressOptions options = short_compression(model, out.path(), "ziplm:keep=0.5");
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  auto before = open_model_files(model), after = open_model_files(out.path());
  ASSERT_TRUE(before.ok() && after.ok());
  auto loaded = LanguageModel::load(model, {.threads = 1});
  ASSERT_TRUE(loaded.ok());
  const ArchSpec& spec = (*loaded)->parts().model->spec();
  auto calibration = InputCalibration::create(*loaded, std::make_shared<ThreadPool>(1), options.calibration);
  ASSERT_TRUE(calibration.ok());
  const auto width = static_cast<size_t>(spec.width), hidden = static_cast<size_t>(spec.hidden);
  for (int32_t layer = 0; layer < spec.layer_count(); ++layer) {
    StatisticsMap statistics;
    LinearStatistics& one = statistics[{layer, LinearKind::down}];
    one.moments = SecondMoments(spec.hidden);
    ASSERT_TRUE((*calibration)->measure(kSecondMoments, statistics, false, [](double) {}).ok());
    const std::string prefix = fmt::format("blk.{}.", layer);
    const auto down = stored_values(*before, prefix + "ffn_down.weight");
    const size_t left = hidden / 64 * 32;
    const PlainColumns want = remove_columns(down, width, hessian_of(one, 0.01), hidden - left);
    const auto got = stored_values(*after, prefix + "ffn_down.weight");
    ASSERT_EQ(got.size(), width * left);
    for (size_t r = 0; r < width; ++r)
      for (size_t c = 0; c < left; ++c) ASSERT_NEAR(got[r * left + c], want.weights[r][c], 2e-3) << layer;
    for (const char* part : {"ffn_gate", "ffn_up"}) {
      const auto all = stored_values(*before, prefix + part + ".weight"),
                 rows = stored_values(*after, prefix + part + ".weight");
      ASSERT_EQ(rows.size(), left * width);
      for (size_t i = 0; i < left; ++i)
        for (size_t c = 0; c < width; ++c)
          ASSERT_EQ(rows[i * width + c], all[static_cast<size_t>(want.left[i]) * width + c]) << layer << part;
    }
    EXPECT_GT(figure_of(done->structure.at(static_cast<size_t>(layer)).second, "output_error"), 0);
    EXPECT_LT(figure_of(done->structure.at(static_cast<size_t>(layer)).second, "output_error"), 1);
  }
}

TEST(ZipLm, KeepsWhatItIsToldTo) {
  for (const std::string model : {"llama", "gpt2"}) {
    const ScratchModel all, half;
    ASSERT_TRUE(compress_model(short_compression(golden_gguf(model), all.path(), "ziplm:keep=1")).ok());
    EXPECT_EQ(next_logits(all.path()), next_logits(golden_gguf(model))) << model;
    auto done = compress_model(short_compression(golden_gguf(model), half.path(), "ziplm:keep=0.5"));
    ASSERT_TRUE(done.ok()) << model << ": " << done.error().message;
    for (float logit : next_logits(half.path())) ASSERT_TRUE(std::isfinite(logit));
    EXPECT_LT(done->output_bytes, done->input_bytes);
  }
}

// label(once): measures a table of many products
TEST(ZipLm, TheTableDecidesTheWidthOfASpeedUp) {
  const ScratchModel out;
  const std::string model = std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-stories-6m.gguf";
  CompressOptions options = short_compression(model, out.path(), "ziplm:speedup=1.05");
  options.threads = 1;
  auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const PassRow& timed = done->structure.front().second;
  EXPECT_EQ(timed.action, "timed");
  EXPECT_LE(1.05 * figure_of(timed, "us_after"), figure_of(timed, "us_before"));
  EXPECT_LT(figure_of(timed, "columns"), 704);
  auto files = open_model_files(out.path());
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(static_cast<double>(files->find("blk.0.ffn_up.weight")->tensor.rows()), figure_of(timed, "columns"));
}

TEST(ZipLm, ThreadsDoNotChangeABit) {
  std::string first;
  for (int threads : {1, 3}) {
    const ScratchModel out;
    CompressOptions options = short_compression(golden_gguf("llama"), out.path(), "ziplm:keep=0.5");
    options.threads = threads;
    ASSERT_TRUE(compress_model(options).ok());
    const std::string bytes = read_file(out.path());
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << threads;
  }
}

TEST(ZipLm, SaysWhatIsWrong) {
  EXPECT_EQ(make_pass("ziplm:keep=0.5,speedup=2").error().message,
            "pass ziplm: keep, speedup: give one of them; the other follows from it");
  const ScratchModel out;
  auto done = compress_model(short_compression(golden_gguf("mixtral"), out.path(), "ziplm"));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "--pass ziplm: needs a dense MLP of the same width in every layer");
  done = compress_model(short_compression(golden_gguf("phi3"), out.path(), "ziplm"));
  ASSERT_FALSE(done.ok());
  EXPECT_TRUE(done.error().message.starts_with("--pass ziplm: phi3 stores gate and up of an MLP as one tensor, ffn_up"))
      << done.error().message;
}

}  // namespace
}  // namespace millrace
