// DocumentRows: parts of contexts in an engine whose KV cache a codec encodes. Keys that move need their rows, and so
// do tokens whose bits must not depend on where the part stands in the blocks of a prompt. So a part is computed as a
// stream of its own, in rows of F16; its rows are kept (run/documents/kept_rows.h), and become the keys and values of
// every prompt that has the part: moved, and encoded once, as if a pass had computed them there.
//
//   own streams, F16     [ <s> document A ]  [ <s> document B ]        blocks of a pool of their own
//                               |                   |                  keys move to their positions
//   a prompt, encoded    [ <s> | document B | document A | question ]  tiles, and the tail of its newest tokens
//
// Engine thread only, but for kept().check().
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/model_runner.h"
#include "run/documents/kept_rows.h"
#include "run/language_model.h"

namespace millrace {

class DocumentRows {
 public:
  // For `tokens` tokens of all parts, in passes as `limits` says. `shares`: streams share them. Charges the rows to the
  // account "documents", and the memory of a pass to "activations" and "logits". `model` outlives it. Errors: user (the
  // layout), resource.
  static Result<std::unique_ptr<DocumentRows>> create(const LanguageModel& model, std::shared_ptr<ThreadPool> threads,
                                                      ForwardLimits limits, int64_t tokens, bool shares);

  // DocumentPlacer::hold_part() and put_part(). `target`: of the streams.
  bool hold(StreamRef stream, const ContextPart& part, int64_t& budget);
  int64_t put(StreamRef stream, const ContextPart& part, int64_t count, ModelRunner& target);

  const KeptRows& kept() const { return *kept_; }
  ModelRunner& runner() { return *runner_; }

 private:
  DocumentRows() = default;

  std::vector<MemoryHold> memory_;
  std::unique_ptr<ModelRunner> runner_;
  std::optional<KeptRows> kept_;  // rows in its pool
};

}  // namespace millrace
