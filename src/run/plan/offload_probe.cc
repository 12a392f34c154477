#include "run/plan/offload_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "kv/tiers/disk_speed.h"
#include "models/arch.h"
#include "models/model_builder.h"
#include "models/model_runner.h"
#include "models/router.h"

namespace millrace {
namespace {

using ProbeClock = std::chrono::steady_clock;

constexpr int64_t kLargerThanCaches = int64_t{256} << 20;
constexpr int64_t kDepth = 512;       // tokens before a decode step that reads keys
constexpr int64_t kDeepStreams = 16;  // ... and its streams
constexpr int64_t kDecodeRows[] = {1, 4, 16, 64}, kPrefillRows[] = {64, 256};
constexpr int64_t kProbeBlockTokens = 16;
constexpr double kPassSeconds = 0.3;    // of one kind of pass
constexpr double kSourceSeconds = 0.6;  // ... that reads
constexpr double kSkewSeconds = 1.2;    // of passes with a cache of experts
constexpr double kSkewShare = 0.25;     // of the experts, which that cache holds
constexpr int kLeastPasses = 3, kMostPasses = 200;
constexpr int64_t kDiskReads = 16;   // in flight, where the disk is measured alone
constexpr size_t kLeastLayers = 3;   // with fewer, `stream` reads no layer again
constexpr double kWriteShare = 0.5;  // of the rate of reads, for what no pass writes
constexpr double kFastest = 1e12;    // bytes a second, where a difference is within the noise

// The first layers of a model, and what one token multiplies there.
struct FirstLayers {
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelRunner> runner;
  std::vector<BlockId> blocks;
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

class OffloadMeasurement {
 public:
  explicit OffloadMeasurement(const OffloadProbe& probe) : probe_(probe), arch_(*find_arch(*probe.files)) {}
  ~OffloadMeasurement() { ::unlink(probe_.scratch_file.c_str()); }

  Result<OffloadCosts> run() {
    MILLRACE_TRY(spec_, read_arch_spec(*probe_.files));
    if (spec_.encoder) return Error::unsupported("offload plan: the model is an encoder, which predicts no tokens");
    spec_.moe.router = routers().entries().front().member;
    for (LayerSpec& layer : spec_.layers)
      if (layer.moe) layer.experts.router = spec_.moe.router;
    MILLRACE_TRY_VOID(choose_layers());
    MILLRACE_TRY_VOID(measure_memory());
    MILLRACE_TRY_VOID(measure_mapped());
    MILLRACE_TRY_VOID(measure_stream());
    if (sizes_.places.model.experts > 0) MILLRACE_TRY_VOID(measure_experts());
    costs_.write_bytes = kWriteShare * costs_.read_bytes;
    costs_.measured = true;
    return costs_;
  }

 private:
  // As few layers as are larger than the caches, and as `stream` needs to read in each pass. Models whose tables have
  // parts for all layers run whole.
  Result<void> choose_layers() {
    MILLRACE_TRY(sizes_, ModelBuilder::measure(probe_.files, arch_, spec_, probe_.kernels, probe_.threads->threads()));
    const bool whole = spec_.layer_input > 0 || spec_.streams > 1;
    int64_t bytes = 0;
    size_t count = 0;
    while (count < spec_.layers.size() && (whole || bytes < kLargerThanCaches || count < kLeastLayers))
      bytes += sizes_.places.layers[count++].bytes();
    if (count == spec_.layers.size()) return {};
    spec_.layers.resize(count);
    MILLRACE_TRY(sizes_, ModelBuilder::measure(probe_.files, arch_, spec_, probe_.kernels, probe_.threads->threads()));
    return {};
  }

  Result<FirstLayers> load(const std::string& weights) {
    FirstLayers out;
    ModelOptions options{.weights = weights, .context = 2 * kDepth};
    if (weights != "resident") options.packed_cache = probe_.scratch_file;
    MILLRACE_TRY(out.model, ModelBuilder(probe_.files, arch_, spec_).build(probe_.kernels, *probe_.threads, options));
    const int64_t most = std::max(kDecodeRows[3], kPrefillRows[1]);
    const int64_t deep = kDeepStreams * (kDepth / kProbeBlockTokens + 1);
    const int64_t blocks = std::max(deep, most + kPrefillRows[1] / kProbeBlockTokens);
    MILLRACE_TRY(out.runner,
                 ModelRunner::create(*out.model, probe_.kernels,
                                     {.threads = probe_.threads,
                                      .layout = KvLayout{find_format("f16"), kProbeBlockTokens, out.model->kv_layers()},
                                      .blocks = blocks,
                                      .limits = {.tokens = most, .outputs = most, .context = 2 * kDepth},
                                      .streams = most}));
    for (int64_t i = 0; i < blocks; ++i) {
      MILLRACE_TRY(const BlockId block, out.runner->kv().allocate());
      out.blocks.push_back(block);
    }
    return out;
  }

  // Seconds of a pass of one token for each of `rows` streams with `depth` tokens, or of `rows` tokens of one prompt.
  Result<double> time_pass(FirstLayers& first, int64_t rows, int64_t depth, bool prompt, double seconds) {
    std::vector<double> times;
    const auto start = ProbeClock::now();
    const auto spent = [&] { return std::chrono::duration<double>(ProbeClock::now() - start).count(); };
    for (int i = 0; i <= kMostPasses && (i <= kLeastPasses || spent() < seconds); ++i) {
      fill(first, rows, depth, prompt);
      const auto before = ProbeClock::now();
      first.runner->forward();
      const double took = std::chrono::duration<double>(ProbeClock::now() - before).count();
      MILLRACE_TRY_VOID(first.runner->take_failure());
      if (i > 0) times.push_back(took);  // the first pass warms up
    }
    done_ += 1;
    if (probe_.progress) probe_.progress(std::min(1.0, done_ / kMeasurements));
    return median(std::move(times));
  }

  // A token of its own in each place, so that mixtures choose different experts.
  void fill(FirstLayers& first, int64_t rows, int64_t depth, bool prompt) {
    ModelRunner& runner = *first.runner;
    const auto token = [&] { return static_cast<TokenId>((next_token_ += 7919) % std::max<int64_t>(2, spec_.vocab)); };
    runner.start();
    const int64_t streams = prompt ? 1 : rows, tokens = prompt ? rows : 1;
    const int64_t each = (depth + tokens + kProbeBlockTokens - 1) / kProbeBlockTokens;
    for (int64_t s = 0; s < streams; ++s) {
      runner.begin(std::span(first.blocks).subspan(static_cast<size_t>(s * each), static_cast<size_t>(each)), depth,
                   nullptr, static_cast<StateId>(s));
      for (int64_t t = 0; t < tokens; ++t) runner.add(token(), depth + t, t + 1 == tokens);
    }
  }

  Result<void> measure_memory() {
    MILLRACE_TRY(FirstLayers first, load("resident"));
    const OffloadModel& model = sizes_.places.model;
    for (const int64_t rows : kDecodeRows) {
      MILLRACE_TRY(const double seconds, time_pass(first, rows, 0, false, kPassSeconds));
      costs_.decode.push_back({rows, seconds / model.token_bytes});
    }
    const double layers = std::max(1.0, model.token_bytes - model.head_bytes);
    for (const int64_t rows : kPrefillRows) {
      MILLRACE_TRY(const double seconds, time_pass(first, rows, 0, true, kPassSeconds));
      // One row of the head.
      const double head = pass_seconds(costs_.decode, 1, model.head_bytes);
      costs_.prefill.push_back({rows, std::max(1e-15, (seconds - head) / layers)});
    }
    MILLRACE_TRY(const double deep, time_pass(first, kDeepStreams, kDepth, false, kPassSeconds));
    const double keys = static_cast<double>(kDeepStreams * kDepth) * model.key_bytes;
    const double more = deep - pass_seconds(costs_.decode, kDeepStreams, model.token_bytes);
    costs_.key_bytes = more > 0 ? std::min(kFastest, std::max(1e6, keys / more)) : kFastest;
    MILLRACE_TRY(one_, time_pass(first, 1, 0, false, kPassSeconds));
    MILLRACE_TRY(many_, time_pass(first, kPrefillRows[1], 0, true, kPassSeconds));
    return {};
  }

  // Bytes a second of what takes `seconds` longer.
  static double rate(double bytes, double seconds) { return seconds > bytes / kFastest ? bytes / seconds : kFastest; }

  // The packed file has just been written, so that the page cache has it.
  Result<void> measure_mapped() {
    MILLRACE_TRY(FirstLayers first, load("mapped"));
    MILLRACE_TRY(const double one, time_pass(first, 1, 0, false, kPassSeconds));
    double touched = 0;
    for (const WeightPlaces::Layer& layer : sizes_.places.layers) touched += static_cast<double>(layer.bytes());
    const OffloadModel& model = sizes_.places.model;
    if (model.experts > 0) touched = std::max(1.0, model.token_bytes - model.head_bytes);
    costs_.cached_bytes = rate(touched, one - one_);
    return {};
  }

  Result<void> measure_stream() {
    if (sizes_.places.layers.size() < kLeastLayers) {
      MILLRACE_TRY(const ReadSpeed disk,
                   measure_disk_speed(probe_.scratch_file, kDiskPieceBytes, kDiskReads, kPassSeconds));
      costs_.read_bytes = std::max(1e6, disk.gb_per_s * 1e9);
      return {};
    }
    MILLRACE_TRY(FirstLayers first, load("stream:resident=0,ahead=1"));
    double all = 0;
    for (const WeightPlaces::Layer& layer : sizes_.places.layers) all += static_cast<double>(layer.bytes());
    MILLRACE_TRY(const double one, time_pass(first, 1, 0, false, kSourceSeconds));
    costs_.read_bytes = all / one;
    MILLRACE_TRY(const double many, time_pass(first, kPrefillRows[1], 0, true, kSourceSeconds));
    costs_.read_work = std::clamp((many - many_) / all, 0.0, 1 / costs_.read_bytes);
    return {};
  }

  // Passes of one token.
  struct ExpertPasses {
    double seconds = 0, passes = 0;
    double bytes = 0;           // that were read
    double hits = 0, uses = 0;  // of experts
  };
  Result<ExpertPasses> run_experts(FirstLayers& first, double seconds) {
    const WeightFigures before = *first.model->source()->figures();
    const auto start = ProbeClock::now();
    const auto spent = [&] { return std::chrono::duration<double>(ProbeClock::now() - start).count(); };
    ExpertPasses out;
    for (; out.passes < kLeastPasses || spent() < seconds; ++out.passes) {
      fill(first, 1, 0, false);
      first.runner->forward();
      MILLRACE_TRY_VOID(first.runner->take_failure());
    }
    const WeightFigures after = *first.model->source()->figures();
    out.seconds = spent();
    out.bytes = static_cast<double>(after.bytes_read - before.bytes_read);
    out.hits = static_cast<double>(after.hits - before.hits);
    out.uses = out.hits + static_cast<double>(after.misses - before.misses);
    return out;
  }

  // With room for two experts, so that nearly all are read; then with more room, so that frequent ones stay.
  Result<void> measure_experts() {
    int64_t kept = sizes_.places.other_bytes(), largest = 0, all = 0;
    for (const WeightPlaces::Layer& layer : sizes_.places.layers) {
      kept += WeightPlaces::bytes_of(layer.own);
      for (const auto& expert : layer.experts) {
        largest = std::max(largest, WeightPlaces::bytes_of(expert));
        all += WeightPlaces::bytes_of(expert);
      }
    }
    constexpr int64_t kRounding = int64_t{1} << 20;
    const int64_t least = (2 * sizes_.places.model.used_experts + 2) * largest;
    const auto source = [&](int64_t cache) {
      return fmt::format("experts:guess=none,memory={}", kept + cache + kRounding);
    };
    {
      MILLRACE_TRY(FirstLayers first, load(source(least)));
      MILLRACE_TRY(const ExpertPasses read, run_experts(first, kSourceSeconds));
      costs_.expert_bytes = rate(read.bytes, read.seconds - read.passes * one_);
    }
    const auto cache = static_cast<int64_t>(kSkewShare * static_cast<double>(all));
    if (cache < least) return {};
    MILLRACE_TRY(FirstLayers first, load(source(cache)));
    MILLRACE_TRY_VOID(run_experts(first, kSkewSeconds));  // the cache learns
    MILLRACE_TRY(const ExpertPasses used, run_experts(first, kSkewSeconds));
    if (used.uses > 0)
      costs_.expert_skew = expert_skew_of(sizes_.places.model.experts, kSkewShare, used.hits / used.uses);
    return {};
  }

  static constexpr double kMeasurements = 12;

  const OffloadProbe& probe_;
  const Arch& arch_;
  ArchSpec spec_;
  ModelBuilder::Sizes sizes_;
  OffloadCosts costs_;
  double one_ = 0, many_ = 0;  // seconds of passes from memory
  double done_ = 0;
  int64_t next_token_ = 0;
};

}  // namespace

Result<OffloadCosts> measure_offload_costs(const OffloadProbe& probe) {
  if (!find_arch(*probe.files)) return Error::unsupported(probe.files->path + ": unknown architecture");
  return OffloadMeasurement(probe).run();
}

}  // namespace millrace
