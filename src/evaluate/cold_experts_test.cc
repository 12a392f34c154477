// weights=experts with cold experts: the bits of matrices that were rounded before, for any number of threads, batch
// and cache; exact where nothing is cold; the profile that says which experts are; what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "copied_models.h"
#include "evaluate/expert_uses.h"
#include "kernels/activation.h"
#include "kernels/linear.h"
#include "models/weight_source.h"

namespace millrace {
namespace {

constexpr const char* kLabExperts = "models/millrace-lab-experts-2m.gguf";

using ColdByExpert = std::vector<std::vector<bool>>;

// Multiplies by cold experts' matrices, each rounded to `format` from the file's rows and packed on its own.
class RoundedExperts final : public LinearWrapper {
 public:
  RoundedExperts(const Format& format, ColdByExpert cold) : format_(format), cold_(std::move(cold)) {}

  bool wraps(const LinearId& id) const override {
    const bool matrix = id.kind == LinearKind::gate || id.kind == LinearKind::up || id.kind == LinearKind::down;
    return matrix && id.layer >= 0 && id.expert >= 0 &&
           cold_[static_cast<size_t>(id.layer)][static_cast<size_t>(id.expert)];
  }
  bool replaces(const LinearId& id) const override { return wraps(id); }
  void apply(const LinearCall& call) override {
    const Weight& stored = call.in.weight;
    std::vector<float> values(static_cast<size_t>(stored.rows * stored.cols));
    stored.format->decode(stored.data, values.data(), std::ssize(values));
    std::vector<uint8_t> rounded(static_cast<size_t>(stored.rows * format_.row_bytes(stored.cols)));
    format_.encode(values.data(), rounded.data(), std::ssize(values));
    Weight weight;
    weight.name = stored.name;
    weight.format = &format_;
    weight.rows = stored.rows;
    weight.cols = stored.cols;
    weight.data = rounded.data();
    ASSERT_TRUE(pack_weight(weight, call.kernels, call.pool).ok());
    auto scratch =
        AlignedBuffer::allocate(call.in.tokens * activation_row_bytes(format_.activation, weight.cols), "test");
    ASSERT_TRUE(scratch.ok());
    linear(call.pool, weight,
           encode_activations(call.kernels, call.pool, format_.activation, call.in.x, weight.cols, call.in.tokens,
                              weight.cols, scratch->data()),
           call.y, weight.rows);
    ++products;
  }

  int64_t products = 0;

 private:
  const Format& format_;
  const ColdByExpert cold_;
};

class ColdExpertsOfFiles : public CopiedModels {
 protected:
  static constexpr int64_t kWindow = 16, kWindows = 3;

  Result<std::shared_ptr<const LanguageModel>> load(const std::string& path, const std::string& weights,
                                                    int threads = 2) {
    LoadOptions options;
    options.threads = threads;
    options.context = 64;
    options.weights = weights;
    options.warn = [&](const std::string& message) { warnings_.push_back(message); };
    return LanguageModel::load(path, options);
  }

  static std::vector<TokenId> text() {
    std::vector<TokenId> out;
    for (TokenId i = 0; i < kWindow * kWindows; ++i) out.push_back(1 + (i * 7 + i * i / 5) % 40);
    return out;
  }

  // The logits of all tokens of three windows.
  static std::vector<float> logits(const std::shared_ptr<const LanguageModel>& model, LinearWrapper* wrapper = nullptr,
                                   int threads = 2, int64_t batch_tokens = 512) {
    auto scorer = Scorer::create(model, {.threads = threads, .context = kWindow, .batch_tokens = batch_tokens});
    EXPECT_TRUE(scorer.ok()) << (scorer.ok() ? "" : scorer.error().message);
    auto windows = chunk_windows(kWindow * kWindows, kWindow);
    for (ScoreWindow& window : windows) window.first_scored = 1;
    if (wrapper) (*scorer)->runner().hooks().add(*wrapper);
    std::vector<float> out;
    const auto ran = (*scorer)->run(text(), windows, -1, [&](std::span<const ScoredRow> rows) {
      for (const ScoredRow& row : rows) out.insert(out.end(), row.logits, row.logits + (*scorer)->vocab());
      return Result<void>();
    });
    EXPECT_TRUE(ran.ok()) << (ran.ok() ? "" : ran.error().message);
    if (wrapper) (*scorer)->runner().hooks().remove(*wrapper);
    EXPECT_FALSE(out.empty());
    return out;
  }

  // Writes the uses of experts by the text, and returns the file's path.
  std::string profile_of(const std::shared_ptr<const LanguageModel>& model) {
    const auto profile = count_expert_uses(model, text(), {.threads = 2, .context = kWindow});
    EXPECT_TRUE(profile.ok()) << (profile.ok() ? "" : profile.error().message);
    profile_ = *profile;
    const std::string path = (folder_ / "uses.experts").string();
    EXPECT_TRUE(write_expert_profile(path, profile_).ok());
    return path;
  }

  ColdByExpert cold(double hot) const {
    ColdByExpert out;
    for (const auto& uses : profile_.uses) out.push_back(cold_by_uses(uses, hot));
    return out;
  }

  std::string message(const std::string& path, const std::string& weights) {
    const auto loaded = load(path, weights);
    EXPECT_FALSE(loaded.ok()) << weights;
    return loaded.ok() ? "" : loaded.error().message;
  }

  ExpertProfile profile_;
  std::vector<std::string> warnings_;
};

TEST_F(ColdExpertsOfFiles, HaveTheBitsOfMatricesThatWereRoundedBefore) {
  for (const char* name : {"tests/golden/mixtral/model.gguf", "tests/golden/qwen2moe/model.gguf", kLabExperts}) {
    const std::string path = copy_of(name);
    auto plain = load(path, "resident");
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    const std::string profile = profile_of(*plain);
    const std::vector<float> exact = logits(*plain);
    for (const auto& [format, hot] : {std::pair("q4_0", 0.5), {"q8_0", 0.25}, {"q4_0", 0.0}, {"q5_1", 0.375}}) {
      if (name == kLabExperts && format == std::string("q8_0")) continue;  // the file's format
      SCOPED_TRACE(fmt::format("{}: {}, hot {}, {} of the uses", name, format, hot, cold_share(profile_, hot)));
      RoundedExperts rounded(*find_format(format), cold(hot));
      const std::vector<float> want = logits(*plain, &rounded);
      EXPECT_GT(rounded.products, 0);
      EXPECT_FALSE(want == exact);
      auto made = load(path, fmt::format("experts:cold={},hot={},profile={}", format, hot, profile));
      ASSERT_TRUE(made.ok()) << name << ": " << made.error().message;
      EXPECT_TRUE(logits(*made) == want) << name << " " << format << " " << hot;
    }
  }
}

TEST_F(ColdExpertsOfFiles, HaveTheSameBitsInAnyBatchAndWithAnyCache) {
  const std::string path = copy_of(kLabExperts);
  auto plain = load(path, "resident");
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  const std::string options = fmt::format("experts:cold=q4_0,hot=0.5,profile={}", profile_of(*plain));
  auto first = load(path, options);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const std::vector<float> want = logits(*first);
  const WeightFigures all = *(*first)->parts().model->source()->figures();
  for (const int threads : {1, 2, 4})
    for (const int64_t batch_tokens : {1, 5, 16, 512})
      EXPECT_TRUE(logits(*first, nullptr, threads, batch_tokens) == want) << threads << " " << batch_tokens;
  for (const char* keep : {"weighed", "lru"}) {
    const int64_t memory = all.kept_bytes + all.cache_bytes / 3;
    auto cached = load(path, fmt::format("{},keep={},memory={}", options, keep, memory), 1);
    ASSERT_TRUE(cached.ok()) << cached.error().message;
    EXPECT_TRUE(logits(*cached) == want) << keep;
    const WeightFigures figures = *(*cached)->parts().model->source()->figures();
    EXPECT_GT(figures.misses, 0);
    EXPECT_LE(figures.kept_bytes + figures.cache_bytes, memory);
  }
}

TEST_F(ColdExpertsOfFiles, AreExactWhereNothingIsCold) {
  const std::string path = copy_of(kLabExperts);
  auto plain = load(path, "resident");
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  const std::vector<float> want = logits(*plain);
  for (const char* weights : {"experts:cold=q4_0,hot=1", "experts:cold=q8_0,hot=0", "experts"}) {
    auto made = load(path, weights);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_TRUE(logits(*made) == want) << weights;
    const WeightSource& source = *(*made)->parts().model->source();
    EXPECT_EQ(source.policy().lossy, "") << weights;
    EXPECT_EQ(source.figures()->cold_experts, 0);
    EXPECT_GT(source.figures()->experts, 0);
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".millrace-packed.cold"));
}

TEST_F(ColdExpertsOfFiles, TakeLessMemoryAndAreCounted) {
  const std::string path = copy_of(kLabExperts);
  auto plain = load(path, "experts");
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  logits(*plain);
  const WeightFigures exact = *(*plain)->parts().model->source()->figures();
  const std::string profile = profile_of(*plain);
  const auto packed_at = std::filesystem::last_write_time(path + ".millrace-packed");
  double last = -1;
  for (const double hot : {0.75, 0.25, 0.0}) {
    auto made = load(path, fmt::format("experts:cold=q4_0,hot={},profile={}", hot, profile));
    ASSERT_TRUE(made.ok()) << made.error().message;
    logits(*made);
    const WeightSource& source = *(*made)->parts().model->source();
    const WeightFigures figures = *source.figures();
    EXPECT_EQ(figures.kept_bytes, exact.kept_bytes);
    const double share = static_cast<double>(figures.cold_experts) / static_cast<double>(figures.experts);
    EXPECT_GT(share, last);
    last = share;
    // 4.5 bits for each of 8.5; matrices are rounded up to pages.
    const double saved = 1 - static_cast<double>(figures.cache_bytes) / static_cast<double>(exact.cache_bytes);
    EXPECT_NEAR(saved, (1 - hot) * 4 / 8.5, 0.08) << hot;
    EXPECT_EQ(source.policy().lossy, fmt::format("experts:cold=q4_0,hot={},profile={}", hot, profile));
    EXPECT_NE(source.policy().text.find("(lossy)"), std::string::npos) << source.policy().text;
  }
  EXPECT_DOUBLE_EQ(last, 1);
  // The file of exact weights stays, and each other choice packs the cold one again.
  EXPECT_EQ(std::filesystem::last_write_time(path + ".millrace-packed"), packed_at);
  EXPECT_TRUE(std::filesystem::exists(path + ".millrace-packed.cold"));
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[0].find(".millrace-packed.cold: is for another model or machine: "), std::string::npos);
  EXPECT_TRUE(warnings_[0].ends_with("; packing again")) << warnings_[0];
}

TEST_F(ColdExpertsOfFiles, ADamagedFileIsPackedAgain) {
  const std::string path = copy_of(kLabExperts), cold = path + ".millrace-packed.cold";
  const auto answer = [&]() -> std::vector<float> {
    auto made = load(path, "experts:cold=q4_0,hot=0");
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? logits(*made) : std::vector<float>();
  };
  const std::vector<float> want = answer();
  EXPECT_TRUE(answer() == want);
  EXPECT_TRUE(warnings_.empty());
  {
    std::fstream file(cold, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(100);
    file.put('\x7f');
  }
  EXPECT_TRUE(answer() == want);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("the header is damaged; packing again"), std::string::npos) << warnings_[0];
}

TEST_F(ColdExpertsOfFiles, AProfileCountsEveryTokenOfEveryLayer) {
  for (const char* name :
       {"tests/golden/mixtral/model.gguf", kLabExperts, "tests/golden/deepseek2_groups/model.gguf"}) {
    auto plain = load(copy_of(name), "resident");
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    profile_of(*plain);
    EXPECT_EQ(profile_.tokens, kWindow * kWindows);
    const ArchSpec& spec = (*plain)->parts().model->spec();
    ASSERT_EQ(profile_.uses.size(), spec.layers.size());
    for (size_t l = 0; l < spec.layers.size(); ++l) {
      int64_t sum = 0;
      for (const int64_t uses : profile_.uses[l]) sum += uses;
      // A window's last token is never an input.
      const int64_t rows = (kWindow - 1) * kWindows;
      EXPECT_EQ(sum, spec.layers[l].moe ? rows * spec.layers[l].experts.used : 0) << name << " layer " << l;
    }
  }
  auto dense = load(copy_of("tests/golden/llama/model.gguf"), "resident");
  ASSERT_TRUE(dense.ok());
  EXPECT_EQ(count_expert_uses(*dense, text(), {.context = kWindow}).error().kind, ErrorKind::unsupported);
}

TEST_F(ColdExpertsOfFiles, SayWhatIsWrong) {
  const std::string path = copy_of("tests/golden/mixtral/model.gguf");
  const auto contains = [&](const std::string& model, const std::string& weights, const std::string& part) {
    const std::string text = message(model, weights);
    EXPECT_NE(text.find("weights experts: " + part), std::string::npos) << text;
  };
  contains(path, "experts:cold=q4_7,hot=0", "cold: unknown format 'q4_7'");
  contains(path, "experts:cold=q4_0", "cold: give profile=FILE");
  contains(path, "experts:profile=x", "profile: says which experts are cold; give their format");
  contains(path, "experts:cold=q4_0,profile=/nowhere/x", "/nowhere/x: cannot be read");
  contains(path, "experts:cold=nvfp4,hot=0", "nvfp4: the format has a scale for each matrix");
  contains(copy_of("tests/golden/gpt_oss/model.gguf"), "experts:cold=q4_0,hot=0",
           "tensor blk.0.ffn_down_exps.weight has 24 columns, not whole blocks of 32 (q4_0)");
  contains(copy_of(kLabExperts), "experts:cold=f16,hot=0", "cold: f16 has 16 bits a value, and tensor ");
  auto lab = load(copy_of(kLabExperts), "resident");
  ASSERT_TRUE(lab.ok());
  const std::string profile = profile_of(*lab);
  contains(path, "experts:cold=q4_0,profile=" + profile, "profile: " + profile + " is of a model with ");
}

}  // namespace
}  // namespace millrace
