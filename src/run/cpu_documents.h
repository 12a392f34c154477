// CpuDocuments: the documents of contexts in an engine on this machine: read by an encoder (run/encoded_documents.h),
// kept as rows (run/document_rows.h) or moved within the engine's own keys (run/context_refresh.h).
//
//   load()  before the runner exists, so that the KV cache takes what memory is left;  attach()  then
#pragma once

#include <memory>

#include "models/model_runner.h"
#include "run/document_placer.h"
#include "run/document_rows.h"
#include "run/encoded_documents.h"
#include "run/engine_plan.h"
#include "run/link_rows.h"

namespace millrace {

class CpuDocuments final : public DocumentPlacer {
 public:
  // Loads the encoder, rows or links that the plan's context needs besides the model, for passes with these limits.
  // Errors: those of EncodedDocuments, DocumentRows and LinkRows.
  static Result<std::unique_ptr<CpuDocuments>> load(const LanguageModel& model, const EnginePlan& plan,
                                                    std::shared_ptr<ThreadPool> threads, const ForwardLimits& limits);
  // `runner` runs the streams, and outlives the object.
  void attach(ModelRunner& runner);

  EncodedDocuments* encoded() { return documents_.get(); }  // null: no encoder
  // Computes the rows of documents; null: they are not kept apart.
  ModelRunner* rows_runner() { return rows_ ? &rows_->runner() : nullptr; }

  Result<void> check_encoded(const DocumentTokens& documents) const override;
  Result<void> put_links(const LinkRowsChoice& choice, Request& request) const override;
  Result<void> check_parts(const ContextPlan& plan) const override;
  bool places_parts() const override { return rows_ != nullptr; }
  bool hold_documents(StreamRef stream, const DocumentTokens* documents, int64_t& budget) override;
  bool hold_part(StreamRef stream, const ContextPart& part, int64_t& budget) override;
  int64_t put_part(StreamRef stream, const ContextPart& part, int64_t count) override;
  void refresh(StreamRef stream, const ContextPlan& plan, std::span<const size_t> stale) override;
  Result<void> check_blocks() const override;

 private:
  CpuDocuments() = default;

  ModelRunner* runner_ = nullptr;
  std::unique_ptr<EncodedDocuments> documents_;  // a hook of the runner; null: no encoder
  std::unique_ptr<DocumentRows> rows_;           // null: streams have rows, or no documents apart
  std::unique_ptr<const LinkRows> links_;        // null: links are tokens
};

}  // namespace millrace
