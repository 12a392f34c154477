// Evictors that prune heads: the bits of a stream depend on the stream alone, the heads that attend are those with the
// largest outputs so far, and the others' outputs are zeros.
#include <fmt/format.h>

#include <cmath>

#include "evicted_text.h"
#include "properties/evictor_runs.h"

namespace millrace {
namespace {

using namespace testing;

class HeadPruning : public EvictorRuns {};

TEST_P(HeadPruning, ChangesTheAnswer) {
  change_the_answer();
  std::string whole = GetParam().evictor;
  whole.replace(whole.find("heads=0.5"), 9, "heads=1");
  EXPECT_FALSE(run_one(evicting(options()), request(1)).same_bits(run_one(evicting(options(), whole), request(1))));
}

TEST_P(HeadPruning, ThreadsBlocksAndChunksDoNotShow) { threads_blocks_and_chunks_do_not_show(); }

TEST_P(HeadPruning, BatchMatesDoNotShow) {
  mates_do_not_show({"", "none", "h2o:budget=9,slack=2", "spatten:keep=12,final=5,slack=2,heads=0.5"});
}

TEST_P(HeadPruning, EachAnswerIsThatOfItsOwnRequest) { each_answer_is_that_of_its_own_request(); }

TEST_P(HeadPruning, DraftsDoNotShow) {
  drafts_do_not_show({"ngram:n=2,min=1,k=2", "ngram:n=2,min=1,k=9", "self:k=3,mlp=1,p=0"});
}

TEST_P(HeadPruning, PreemptedAtAnyStageTheyContinue) { preempted_at_any_stage_they_continue(); }

TEST_P(HeadPruning, ScoringSeesThem) { scoring_sees_them(32); }

// What the matrix that joins the heads reads: [tokens, heads * value_dim].
struct JoinedRows final : ForwardObserver {
  int64_t last_layer = 0;
  std::vector<std::vector<float>> rows;  // by layer
  bool taps(const LinearId& id) const override { return id.kind == LinearKind::output && id.layer <= last_layer; }
  void input(const LinearInput& in) override {
    rows[static_cast<size_t>(in.id.layer)].assign(in.x, in.x + in.tokens * in.weight.cols);
  }
};

TEST_P(HeadPruning, KeepsTheLargestOutputs) {
  const ArchSpec& spec = model_->parts().model->spec();
  const auto rule = *make_eviction_rule(GetParam().evictor);
  const Request r = request(4, 100);
  EvictedText text(*model_, evicting_prompts(), 100, 7);
  JoinedRows joined;
  joined.last_layer = layers_ - 1;
  joined.rows.resize(static_cast<size_t>(layers_));
  text.runner().hooks().add(joined);
  const int64_t heads = spec.kv_heads, each = spec.heads / heads * spec.head_dim;
  std::vector<double> sizes(static_cast<size_t>(heads));
  std::vector<int64_t> order;  // by size, at the last decision
  int64_t pruned = 0;
  while (text.computed() < 100) {
    const int64_t before = text.eviction().decisions();
    text.next(std::span(r.prompt).subspan(static_cast<size_t>(text.computed())));
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const auto& rows = joined.rows[static_cast<size_t>(layer)];
      const int64_t kept = rule->evictor->heads_of(layer, layers_, heads);
      for (size_t i = 0; i < rows.size(); i += static_cast<size_t>(heads * each))
        for (int64_t head = 0; head < heads; ++head) {
          double size = 0;
          for (int64_t d = 0; d < each; ++d) size += std::fabs(rows[i + static_cast<size_t>(head * each + d)]);
          if (layer + 1 < layers_) sizes[static_cast<size_t>(head)] += size;
          const auto rank = std::ranges::find(order, head) - order.begin();
          const bool attends = order.empty() || rank < kept;
          EXPECT_EQ(size > 0, attends) << layer << ", " << head;
          pruned += !attends;
        }
    }
    if (text.eviction().decisions() == before) continue;
    order.clear();
    for (int64_t head = 0; head < heads; ++head) order.push_back(head);
    std::ranges::stable_sort(order, std::greater<>(), [&](int64_t head) { return sizes[static_cast<size_t>(head)]; });
  }
  EXPECT_GT(pruned, 0);
  text.runner().hooks().remove(joined);
}

INSTANTIATE_TEST_SUITE_P(Members, HeadPruning,
                         ::testing::Values(EvictorCase{"spatten:keep=30,final=12,recent=6,slack=8,heads=0.5", "gates"},
                                           EvictorCase{"spatten:keep=30,final=12,recent=6,slack=5,heads=0.5,"
                                                       "prompt=evicted"},
                                           EvictorCase{"spatten:keep=30,final=12,recent=6,slack=6,heads=0.5",
                                                       "llama_linear"}),
                         case_name);

}  // namespace
}  // namespace millrace
