#include "workload/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/enum_table.h"

namespace millrace {
namespace {

constexpr double kMaxLength = static_cast<double>(kMaxTraceTokens);

struct Shape {
  std::string_view name;
  size_t parameters;
  std::string_view usage;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// Hash of block `index` of the prefix shared by group `group`.
uint64_t prefix_hash(uint64_t seed, uint64_t group, uint64_t index) {
  const auto r = philox4x32(seed, index, group ^ uint64_t{0x67726f75} << 32);
  return uint64_t{r[0]} << 32 | r[1];
}

// Draws a group with weights (g + 1)^-skew, by inverting their cumulative sums.
uint64_t draw_group(const std::vector<double>& sums, double uniform) {
  return static_cast<uint64_t>(std::upper_bound(sums.begin(), sums.end() - 1, uniform * sums.back()) - sums.begin());
}

}  // namespace

Result<LengthDistribution> LengthDistribution::parse(const std::string& name, const std::string& text) {
  static constexpr EnumTable<Kind, Shape> kShapes(Shape{"fixed", 1, "fixed:N"}, Shape{"uniform", 2, "uniform:MIN:MAX"},
                                                  Shape{"lognormal", 2, "lognormal:MU:SIGMA"},
                                                  Shape{"pareto", 3, "pareto:ALPHA:MIN:MAX"});
  if (text == "sharegpt_prompt") return parse(name, "lognormal:5.487:0.671");
  if (text == "sharegpt_output") return parse(name, "lognormal:3.587:1.223");
  const auto parts = split(text, ':');
  for (Kind kind : kAllOf<Kind>) {
    if (parts[0] != kShapes[kind].name) continue;
    LengthDistribution out;
    out.kind_ = kind;
    double* values[] = {&out.a_, &out.b_, &out.c_};
    bool good = parts.size() == kShapes[kind].parameters + 1;
    for (size_t i = 1; good && i < parts.size(); ++i) {
      const auto [end, error] = std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), *values[i - 1]);
      good = error == std::errc() && end == parts[i].data() + parts[i].size() && std::isfinite(*values[i - 1]);
    }
    if (out.kind_ == Kind::fixed) good = good && out.a_ >= 1 && out.a_ <= kMaxLength;
    if (out.kind_ == Kind::uniform) good = good && out.a_ >= 1 && out.b_ >= out.a_ && out.b_ <= kMaxLength;
    if (out.kind_ == Kind::lognormal) good = good && out.a_ >= 0 && out.a_ <= 16 && out.b_ >= 0 && out.b_ <= 8;
    if (out.kind_ == Kind::pareto)
      good = good && out.a_ >= 0.01 && out.a_ <= 100 && out.b_ >= 1 && out.c_ >= out.b_ && out.c_ <= kMaxLength;
    if (!good)
      return Error::user(fmt::format("{}: '{}' is not {} with lengths from 1 to {}", name, text, kShapes[kind].usage,
                                     kMaxTraceTokens));
    return out;
  }
  return Error::user(
      fmt::format("{}: unknown '{}'; available: fixed:N, uniform:MIN:MAX, lognormal:MU:SIGMA, pareto:ALPHA:MIN:MAX, "
                  "sharegpt_prompt, sharegpt_output",
                  name, text));
}

int64_t LengthDistribution::draw(ItemDraws& random) const {
  double value = a_;
  if (kind_ == Kind::uniform) value = std::floor(a_ + random.uniform() * (b_ - a_ + 1));
  if (kind_ == Kind::lognormal) value = std::round(std::exp(a_ + b_ * random.normal()));
  if (kind_ == Kind::pareto) {  // inverse of the bounded distribution function
    const double low = std::pow(b_, -a_), high = std::pow(c_, -a_);
    value = std::round(std::pow(low - random.uniform() * (low - high), -1 / a_));
  }
  return static_cast<int64_t>(std::clamp(value, 1.0, kMaxLength));
}

const std::vector<OptionSpec>& generator_schema() {
  using Type = OptionSpec::Type;
  static const std::vector<OptionSpec> schema = {
      {"requests", Type::integer, "1000", 1, static_cast<double>(kMaxTraceRequests), "number of requests"},
      {"seed", Type::integer, "0", 0, 9e15, "random seed"},
      {"arrivals", Type::text, "poisson", 0, 0, "poisson, gamma or uniform"},
      {"rate", Type::number, "1", 1e-6, 1e9, "requests per second"},
      {"burstiness", Type::number, "1", 1e-3, 1e3, "shape of the gamma distribution; below 1 is burstier than Poisson"},
      {"prompt", Type::text, "sharegpt_prompt", 0, 0, "length distribution of the unshared part of prompts, tokens"},
      {"output", Type::text, "sharegpt_output", 0, 0, "length distribution of answers, tokens"},
      {"prefix_tokens", Type::integer, "0", 0, 1 << 20, "length of the shared prefixes, rounded down to whole blocks"},
      {"prefix_groups", Type::integer, "1", 1, 1 << 20, "number of different shared prefixes"},
      {"prefix_share", Type::number, "1", 0, 1, "fraction of requests that begin with a shared prefix"},
      {"prefix_skew", Type::number, "0", 0, 10, "Zipf exponent of the prefixes' popularity; 0: uniform"},
      {"block", Type::integer, "16", 1, 65536, "tokens per prefix block"},
      {"documents", Type::integer, "0", 0, 64, "documents that every prompt begins with, in place of a shared prefix"},
      {"document_tokens", Type::integer, "512", 1, 65536, "length of a document"},
      {"document_pool", Type::integer, "100", 1, 1 << 20,
       "documents that they are drawn from, all different in a prompt"},
      {"tenants", Type::integer, "1", 1, 1 << 16, "number of tenants; requests are assigned to t0, t1 ... at random"},
  };
  return schema;
}

Result<std::vector<WorkloadRequest>> generate_workload(std::string_view text) {
  MILLRACE_TRY(const OptionValues values, parse_options(text, generator_schema()));
  MILLRACE_TRY(const auto prompt, LengthDistribution::parse("prompt", values.text("prompt")));
  MILLRACE_TRY(const auto output, LengthDistribution::parse("output", values.text("output")));
  ArrivalSpec arrivals;
  MILLRACE_TRY(arrivals.kind, find_arrival_kind(values.text("arrivals")));
  arrivals.rate = values.number("rate");
  arrivals.burstiness = values.number("burstiness");
  const uint64_t seed = arrivals.seed = static_cast<uint64_t>(values.integer("seed"));
  const int64_t block = values.integer("block"), prefix_blocks = values.integer("prefix_tokens") / block,
                tenants = values.integer("tenants"), documents = values.integer("documents"),
                pool = values.integer("document_pool");
  if (documents > pool)
    return Error::user(
        fmt::format("documents: {} different ones cannot be drawn from a document_pool of {}", documents, pool));
  std::vector<double> weights;
  double sum = 0;
  for (int64_t g = 0; g < values.integer("prefix_groups"); ++g)
    weights.push_back(sum += std::pow(static_cast<double>(g + 1), -values.number("prefix_skew")));

  std::vector<WorkloadRequest> requests(static_cast<size_t>(values.integer("requests")));
  using Purpose = ItemDraws::Purpose;
  for (uint64_t i = 0; i < requests.size(); ++i) {
    WorkloadRequest& request = requests[i];
    ItemDraws prompt_draw(seed, Purpose::prompt_length, i), output_draw(seed, Purpose::output_length, i);
    ItemDraws group_draw(seed, Purpose::prefix_group, i), tenant_draw(seed, Purpose::tenant, i);
    request.prompt_tokens = prompt.draw(prompt_draw);
    request.output_tokens = output.draw(output_draw);
    if (tenants > 1)
      request.tenant = fmt::format("t{}", static_cast<int64_t>(tenant_draw.uniform() * static_cast<double>(tenants)));
    if (documents > 0) {
      ItemDraws document_draw(seed, Purpose::documents, i);
      request.document_tokens = values.integer("document_tokens");
      request.prompt_tokens = std::min(request.prompt_tokens + documents * request.document_tokens, kMaxTraceTokens);
      while (std::ssize(request.documents) < documents) {
        const auto drawn = static_cast<uint64_t>(document_draw.uniform() * static_cast<double>(pool));
        const uint64_t hash = prefix_hash(seed, ~uint64_t{0}, drawn);
        if (std::ranges::find(request.documents, hash) == request.documents.end()) request.documents.push_back(hash);
      }
      continue;
    }
    if (prefix_blocks == 0 || group_draw.uniform() >= values.number("prefix_share")) continue;
    const uint64_t group = draw_group(weights, group_draw.uniform());
    request.prompt_tokens = std::min(request.prompt_tokens + prefix_blocks * block, kMaxTraceTokens);
    request.hash_block_tokens = block;
    for (int64_t b = 0; b < prefix_blocks; ++b)
      request.prefix_hashes.push_back(prefix_hash(seed, group, static_cast<uint64_t>(b)));
  }
  draw_arrivals(requests, arrivals);
  return requests;
}

Result<std::vector<WorkloadRequest>> load_workload(const std::string& what, const TraceOptions& options) {
  constexpr std::string_view kPrefix = "gen:";
  if (!what.starts_with(kPrefix)) return read_trace(what, options);
  MILLRACE_TRY(auto requests, generate_workload(std::string_view(what).substr(kPrefix.size())));
  if (options.limit > 0 && options.limit < static_cast<int64_t>(requests.size()))
    requests.resize(static_cast<size_t>(options.limit));
  MILLRACE_TRY_VOID(scale_arrivals(requests, options.scale, options.rate));
  return requests;
}

}  // namespace millrace
