// Reformer (Kitaev et al., 2020): queries and keys are hashed to buckets by random rotations, n_rounds times, and a
// query attends to keys of its own bucket. The paper sorts tokens by bucket and cuts them into chunks, each of which
// sees itself and the one before. Here a query sees the blocks with the most pairs of a key and a round in which both
// are in one bucket, and the newest blocks. The paper's models share queries and keys; with other models' keys, which
// have a length and a mean of their own, buckets say less.
#include "attention/patterns/choosing_pattern.h"
#include "attention/patterns/hash_rotations.h"

namespace millrace {
namespace {

class Reformer final : public ChoosingPattern {
 public:
  Reformer(const OptionValues& options, HashRotations rotations)
      : ChoosingPattern(options), rotations_(std::move(rotations)) {}

  int64_t summary_floats(int64_t) const override { return rotations_.hashes() * rotations_.buckets(); }
  void add_key(const PatternPlace&, std::span<const float> key, std::span<float> summary) const override {
    rotations_.count(key, summary);
  }
  void add_query(const PatternPlace&, std::span<const float> query, std::span<float> features) const override {
    rotations_.count(query, features);
  }

 private:
  HashRotations rotations_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_reformer(const OptionValues& options) {
  MILLRACE_TRY(auto rotations, make_hash_rotations(options.integer("hashes"), options));
  return std::unique_ptr<AttentionPattern>(std::make_unique<Reformer>(options, std::move(rotations)));
}

}  // namespace millrace
