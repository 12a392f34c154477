// SimulatedDocuments: documents of contexts on a simulated machine: they are copied where they are cached, in no time,
// and else computed. With a KV format that encodes whole blocks, rows of documents are kept apart, as in an engine
// (run/kept_rows.h). Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "run/document_placer.h"
#include "run/engine_plan.h"
#include "run/kept_rows.h"
#include "run/simulated_time.h"

namespace millrace {

class SimulatedDocuments final : public DocumentPlacer {
 public:
  // The machine whose documents they are; all outlive the object.
  struct Machine {
    const KvPool& kv;
    SimulatedTime& time;
    std::string codec;  // name; "": rows
    int64_t layers = 1;
    int64_t tokens = 1;  // of the largest step
  };
  explicit SimulatedDocuments(const Machine& machine);
  // Keeps the rows that the plan asks for, if any. Errors: resource.
  Result<void> keep_rows(const EnginePlan& plan);

  bool places_parts() const override { return kept_.has_value(); }
  Result<void> check_parts(const ContextPlan& plan) const override {
    return kept_ ? kept_->check(plan) : Result<void>();
  }
  bool hold_part(StreamRef stream, const ContextPart& part, int64_t& budget) override;
  int64_t put_part(StreamRef stream, const ContextPart& part, int64_t count) override {
    return KeptRows::let_go(stream, part, count);
  }
  void refresh(StreamRef stream, const ContextPlan& plan, std::span<const size_t> stale) override;
  Result<void> check_blocks() const override { return kept_ ? kept_->check_blocks() : Result<void>(); }

 private:
  const KvPool* kv_;
  SimulatedTime& time_;
  std::string codec_;
  int64_t layers_, tokens_;
  std::unique_ptr<KvPool> rows_;  // of documents
  std::optional<KeptRows> kept_;
};

}  // namespace millrace
