// Plans of models larger than memory: what members predict that a step reads is what it reads; a plan chooses resident
// weights where they fit, and another source where they do not.
#include "run/plan/offload_plan.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/choose.h"
#include "base/cpu.h"
#include "copied_models.h"
#include "engine/engine_core.h"
#include "kv/tiers/block_io.h"
#include "run/language_model.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class OffloadPlans : public CopiedModels {
 protected:
  OffloadSubject subject_of(const std::string& path) {
    auto files = open_model(path);
    EXPECT_TRUE(files.ok());
    files_ = std::make_shared<const ModelFiles>(std::move(*files));
    kernels_ = make_kernel_table(*select_isa());
    auto subject = offload_subject(files_, kernels_, 2);
    EXPECT_TRUE(subject.ok()) << (subject.ok() ? "" : subject.error().message);
    subject->places.costs = {.decode = {{1, 1e-10}, {64, 1e-9}}, .prefill = {{64, 1e-9}}, .read_bytes = 1e9};
    return *std::move(subject);
  }
  // Bytes that one decode step of one stream reads, after some steps.
  static int64_t read_in_step(const LanguageModel& model, const std::shared_ptr<const LanguageModel>& shared) {
    auto core = EngineCore::create(shared, {.threads = 2, .context = 64, .max_streams = 1});
    EXPECT_TRUE(core.ok()) << (core.ok() ? "" : core.error().message);
    Request request;
    request.prompt = {1, 5, 9};
    request.max_tokens = 8;
    request.ignore_eos = true;
    EXPECT_TRUE((*core)->add(1, request).ok());
    std::vector<TokenEvent> events;
    for (int i = 0; i < 4; ++i) (*core)->step(events);
    const WeightSource& source = *model.parts().model->source();
    // With nothing read ahead, a step's reads are complete when it ends.
    const int64_t before = source.figures()->bytes_read;
    for (int i = 0; i < 2; ++i) (*core)->step(events);
    return (source.figures()->bytes_read - before) / 2;
  }

  std::shared_ptr<const ModelFiles> files_;
  KernelTable kernels_;
};

TEST_F(OffloadPlans, PredictTheBytesThatAStepReads) {
  for (const char* name : {"millrace-stories-6m", "millrace-lab-experts-2m"}) {
    const std::string path = copy_of(std::string("models/") + name + ".gguf");
    const OffloadSubject subject = subject_of(path);
    const int64_t all = subject.places.bytes();
    for (const std::string& text :
         {std::string("stream:resident=1,ahead=0"), std::string("stream:resident=0,ahead=0"),
          "flexgen:ahead=0,streams=1,prompt=8,generated=8,keys=memory,memory=" + std::to_string(all)}) {
      const auto chosen = choose_member("weights", weight_sources(), text);
      ASSERT_TRUE(chosen.ok()) << chosen.error().message;
      WeightPlaces places = subject.places;
      const auto forecast = chosen->member.predict(
          {places, chosen->options, INT64_MAX, {.streams = 1, .prompt = 8, .generated = 8, .chunk = 8}});
      ASSERT_TRUE(forecast.ok()) << forecast.error().message;
      auto model = LanguageModel::load(path, {.threads = 2, .context = 64, .weights = text});
      ASSERT_TRUE(model.ok()) << model.error().message;
      const WeightFigures figures = *(*model)->parts().model->source()->figures();
      if (text.starts_with("stream")) {  // flexgen plans with the costs of this machine
        EXPECT_EQ(static_cast<int64_t>(forecast->decode_bytes), read_in_step(**model, *model)) << name << " " << text;
        EXPECT_EQ(forecast->kept_bytes, figures.kept_bytes) << name << " " << text;
      } else {
        EXPECT_GT(forecast->decode_bytes, 0);
        EXPECT_LT(forecast->kept_bytes, all);
      }
    }
  }
}

// Reads one piece at a time, at a set rate.
class SlowReads final : public BlockIo {
 public:
  static constexpr double kRate = 50e6;  // bytes a second
  SlowReads(int fd, double bytes_per_second) : fd_(fd), rate_(bytes_per_second) {}
  std::string_view name() const override { return "slow"; }
  int64_t depth() const override { return 1; }
  void start(const IoPiece& piece) override { piece_ = piece; }
  int64_t wait(std::span<IoDone> done) override {
    if (!piece_) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(piece_->bytes) / rate_));
    done[0] = {piece_->tag, move_bytes(fd_, *piece_)};
    piece_.reset();
    return 1;
  }

 private:
  int fd_;
  double rate_;
  std::optional<IoPiece> piece_;
};

TEST_F(OffloadPlans, APassOverASlowDiskTakesThePredictedTime) {
  constexpr int64_t kLayers = 6, kLayerBytes = 256 << 10, kPayload = int64_t{2} << 20;
  constexpr double kRate = SlowReads::kRate;
  const std::string path = (folder_ / "weights").string();
  std::string bytes(static_cast<size_t>(kPayload + (kLayers + 1) * kLayerBytes), 0);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  std::ofstream(path, std::ios::binary) << bytes;
  auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message;
  WeightFile file{.mapped = *mapped, .payload = kPayload};
  file.io = [](int fd, int64_t) { return std::make_unique<SlowReads>(fd, SlowReads::kRate); };
  WeightPlaces places;
  for (int64_t i = 0; i <= kLayers; ++i) {
    const int64_t begin = kPayload + i * kLayerBytes;
    file.pieces.push_back({begin, kLayerBytes, XXH3_64bits(bytes.data() + begin, kLayerBytes)});
    const WeightRange range{begin, kLayerBytes, "matrix " + std::to_string(i)};
    if (i == 0)
      places.others.push_back(range);
    else
      places.layers.push_back({.own = {range}});
  }
  places.costs = {.decode = {{1, 1e-15}}, .prefill = {{1, 1e-15}}, .read_bytes = kRate};
  const auto chosen = choose_member("weights", weight_sources(), "stream:resident=0,ahead=1");
  ASSERT_TRUE(chosen.ok());
  const auto forecast = chosen->member.predict({places, chosen->options, INT64_MAX, {}});
  ASSERT_TRUE(forecast.ok()) << forecast.error().message;
  EXPECT_EQ(forecast->decode_bytes, kLayers * kLayerBytes);
  EXPECT_DOUBLE_EQ(forecast->decode_seconds, forecast->decode_bytes / kRate);
  auto made = chosen->member.make(std::move(file), places, chosen->options, INT64_MAX);
  ASSERT_TRUE(made.ok()) << made.error().message;
  constexpr int kPasses = 3;
  const auto start = std::chrono::steady_clock::now();
  for (int pass = 0; pass < kPasses; ++pass)
    for (int64_t i = 0; i < kLayers; ++i) {
      const auto lease = made->source->acquire({i});
      ASSERT_TRUE(lease.ok()) << lease.error().message;
      EXPECT_EQ(made->packed[(i + 1) * kLayerBytes], static_cast<uint8_t>(bytes[kPayload + (i + 1) * kLayerBytes]));
    }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // A loaded machine may take longer.
  EXPECT_GE(seconds, 0.99 * kPasses * forecast->decode_seconds);
}

TEST_F(OffloadPlans, ChooseWhatFits) {
  const std::string path = copy_of("models/millrace-stories-6m.gguf");
  const OffloadSubject subject = subject_of(path);
  const OffloadWork work{.streams = 1, .prompt = 64, .generated = 64, .chunk = 64, .cached_bytes = 0};
  const OffloadPlan much = plan_offload(subject, int64_t{1} << 33, work);
  ASSERT_TRUE(much.best);
  EXPECT_EQ(much.sources[*much.best].name, "resident");
  EXPECT_GE(much.sources.size(), 5u);  // all that predict
  const OffloadPlan less = plan_offload(subject, subject.others + subject.places.bytes() * 9 / 10, work);
  ASSERT_TRUE(less.best);
  EXPECT_NE(less.sources[*less.best].name, "resident");
  EXPECT_NE(less.sources.front().refusal.find("the weights need"), std::string::npos);
  EXPECT_NE(less.reason().find("the weights need"), std::string::npos) << less.reason();
  EXPECT_NE(less.reason().find("estimated"), std::string::npos) << less.reason();
  const OffloadPlan none = plan_offload(subject, subject.others + 1000, work);
  EXPECT_FALSE(none.best);
  for (const PlannedSource& one : none.sources) EXPECT_FALSE(one.refusal.empty()) << one.name;
}

// The more of the weights stay, the less is read and the faster a step is.
TEST_F(OffloadPlans, MoreMemoryIsNeverSlower) {
  const OffloadSubject subject = subject_of(copy_of("models/millrace-lab-experts-2m.gguf"));
  for (const char* name : {"stream", "experts", "flexgen"}) {
    double last = 1e300;
    for (int eighths = 1; eighths <= 16; ++eighths) {
      const OffloadPlan plan = plan_offload(subject, subject.others + subject.places.bytes() * eighths / 8,
                                            {.streams = 4, .prompt = 64, .generated = 64, .chunk = 64});
      const auto one = std::ranges::find(plan.sources, name, &PlannedSource::name);
      ASSERT_NE(one, plan.sources.end());
      if (!one->refusal.empty()) continue;
      EXPECT_LE(one->seconds, last * 1.02) << name << " " << eighths;
      last = one->seconds;
    }
    EXPECT_LT(last, 1e300) << name;
  }
}

// `auto` in a budget that is too small loads another source, and says why; the tokens are the same.
TEST_F(OffloadPlans, AutoLoadsWhatFits) {
  const std::string path = copy_of("models/millrace-stories-6m.gguf");
  auto plain = LanguageModel::load(path, {.threads = 2, .context = 64, .weights = "auto"});
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ((*plain)->parts().model->source(), nullptr);
  EXPECT_EQ((*plain)->parts().weights_note, "");
}

}  // namespace
}  // namespace millrace
