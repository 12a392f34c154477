#include "run/documents/context_refresh.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace {
namespace {

constexpr int64_t kComparedLayer = 1;  // or the only one

class Refresh {
 public:
  Refresh(StreamRef stream, const ContextPlan& plan, std::span<const size_t> stale, ModelRunner& runner)
      : plan_(plan),
        stale_(stale),
        s_(stream.sequence),
        runner_(runner),
        mix_(stream.own.adapters.empty() ? nullptr : &stream.own.adapters),
        turn_(runner.threads()) {}

  void run() {
    std::vector<int64_t> firsts;
    for (const size_t index : stale_) {
      const ContextPart& part = plan_.parts[index];
      if (part.fresh_share > 0) choose(part);
      for (int64_t i = 0; i < part.fresh_first; ++i) firsts.push_back(part.begin + i);
    }
    each_pass(firsts, false, [&](size_t, size_t) { runner_.forward(turn_); });
    const auto width = static_cast<size_t>(runner_.model().spec().width);
    each_pass(chosen_, true, [&](size_t first, size_t count) {
      runner_.forward_from(compared_layer(), std::span(residuals_).subspan(first * width, count * width), turn_);
    });
  }

 private:
  // Keys and values of the compared layer, [tokens, heads, keys | values].
  std::vector<float> rows(const ContextPart& part) const {
    KvPool& kv = runner_.kv();
    const KvLayout& layout = kv.layout();
    const int64_t layer = runner_.context().first_kv_layer + compared_layer();
    const KvLayer& of = layout.layers[static_cast<size_t>(layer)];
    const RowCodec* const codecs[] = {runner_.context().kernels().find_codec(layout.format),
                                      runner_.context().kernels().find_codec(layout.values())};
    const int64_t planes = of.planes(), count = part.end - part.begin;
    const int64_t values = of.kv_heads * of.head_dim * planes;
    std::vector<float> out(static_cast<size_t>(count * values));
    runner_.threads().parallel_for(count, [&](int64_t i, int) {
      const int64_t slot = part.begin + i, at = slot % layout.block_tokens;
      const BlockId block = s_.kv.blocks[static_cast<size_t>(slot / layout.block_tokens)];
      float* row = out.data() + i * values;
      for (int64_t h = 0; h < of.kv_heads; ++h)
        for (int64_t plane = 0; plane < planes; ++plane, row += of.head_dim)
          decode_with_residual(*codecs[plane], kv.plane(layer, block, plane, h) + at * kv.plane_row_bytes(layer, plane),
                               kv.residual_bytes(layer), of.head_dim, row);
    });
    return out;
  }

  int64_t compared_layer() const { return std::min(kComparedLayer, runner_.model().spec().layer_count() - 1); }

  // All tokens of the part run up to the compared layer, where those that are chosen go on.
  void choose(const ContextPart& part) {
    std::vector<int64_t> all(static_cast<size_t>(part.end - part.begin));
    std::iota(all.begin(), all.end(), part.begin);
    const std::vector<float> before = rows(part);
    const auto width = static_cast<size_t>(runner_.model().spec().width);
    std::vector<float> residuals;
    residuals.reserve(all.size() * width);
    each_pass(all, false, [&](size_t, size_t) {
      runner_.forward_to_keys(compared_layer(), turn_);
      residuals.insert(residuals.end(), runner_.residual().begin(), runner_.residual().end());
    });
    const std::vector<float> after = rows(part);
    std::vector<double> deviations(all.size());
    const size_t values = before.size() / all.size();
    for (size_t i = 0; i < before.size(); ++i) {
      const double difference = double{after[i]} - before[i];
      deviations[i / values] += difference * difference;
    }
    for (double& deviation : deviations)
      if (std::isnan(deviation)) deviation = INFINITY;
    for (const int64_t index : most_deviating(deviations, part.fresh_share)) {
      chosen_.push_back(part.begin + index);
      const float* row = residuals.data() + static_cast<size_t>(index) * width;
      residuals_.insert(residuals_.end(), row, row + width);
    }
  }

  // Calls pass(first, count) for batches of `tokens`. Runs of adjacent tokens are spans. Where tokens are scattered
  // each is one, and reads the keys before it with the others. Every layer stores the keys of a whole pass before any
  // token attends.
  template <typename Pass>
  void each_pass(std::span<const int64_t> tokens, bool scattered, const Pass& pass) {
    const auto most = static_cast<size_t>(runner_.limits().tokens);
    for (size_t first = 0; first < tokens.size(); first += most) {
      runner_.start();
      if (scattered) runner_.share_keys();
      const auto piece = tokens.subspan(first, std::min(most, tokens.size() - first));
      for (size_t i = 0; i < piece.size(); ++i) {
        if (i == 0 || piece[i] != piece[i - 1] + 1 || scattered)
          runner_.begin(s_.kv.blocks, piece[i], mix_, s_.kv.state);
        runner_.add(s_.tokens[static_cast<size_t>(piece[i])], piece[i]);
      }
      pass(first, piece.size());
    }
  }

  const ContextPlan& plan_;
  std::span<const size_t> stale_;
  const Sequence& s_;
  ModelRunner& runner_;
  const LoraMix* mix_;
  ThreadPool::Turn turn_;
  std::vector<int64_t> chosen_;   // ascending
  std::vector<float> residuals_;  // [chosen, width], before the compared layer
};

}  // namespace

bool refresh_is_due(const ContextPlan& plan, std::span<const size_t> stale, int64_t next, int64_t most) {
  if (stale.empty()) return false;
  int64_t tokens = 0;
  for (const size_t index : stale) {
    const ContextPart& part = plan.parts[index];
    tokens += part.fresh_share > 0 ? part.end - part.begin : part.fresh_first;
  }
  return tokens >= most || !part_of(plan, next);
}

void refresh_parts(StreamRef stream, const ContextPlan& plan, std::span<const size_t> stale, ModelRunner& runner) {
  Refresh(stream, plan, stale, runner).run();
}

std::vector<int64_t> most_deviating(std::span<const double> deviations, double share) {
  const auto all = std::ssize(deviations);
  const auto count = std::min(all, static_cast<int64_t>(std::ceil(share * static_cast<double>(all))));
  std::vector<int64_t> order(deviations.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return deviations[static_cast<size_t>(a)] > deviations[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  std::ranges::sort(order);
  return order;
}

}  // namespace millrace
