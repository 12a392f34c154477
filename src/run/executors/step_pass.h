// StepPass: one step's forward pass on this machine, from a StepInput to a StepOutput: lays the chunks out for the
// ModelRunner, lets PromptReaders read rows, and observes what the step asks for. Not thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "models/eviction_observer.h"
#include "models/mass_observer.h"
#include "models/model_runner.h"
#include "run/documents/encoded_documents.h"
#include "run/drafting/first_rows.h"
#include "run/drafting/loaded_draft_model.h"
#include "run/executors/step_input.h"

namespace millrace {

class StepPass {
 public:
  // `documents` and `draft` may be null. All outlive the object. Drafts of up to `drafts` tokens, in up to `streams`
  // streams.
  StepPass(ModelRunner& runner, EncodedDocuments* documents, LoadedDraftModel* draft, int64_t drafts, int64_t streams);

  void observe_attention();
  void run(const StepInput& input, StepOutput& output);

 private:
  // A row that a PromptReader reads.
  struct ReadRow {
    PromptReader* reader;
    int64_t chunk;
    int64_t position;
    int32_t row;          // index among the step's outputs
    bool failed = false;  // set by the thread that reads the row

    void read(const float* values);
  };
  // Where a chunk's entries begin in the arrays of the step.
  struct Cursor {
    size_t tokens = 0, blocks = 0, windows = 0, segments = 0, parents = 0, marks = 0;
  };

  void add(const StepInput& input, size_t index, Cursor& at);
  void begin_stream(const StepInput& input, size_t index, Cursor& at);
  void add_rows(const StepInput& input, size_t index, size_t from, int64_t sampled);
  void show_keys(const StepInput& input, const StepChunk& chunk, Cursor& at);
  void forward_in_parts(StepOutput& output);
  bool find_first_rows(const StepInput& input);
  void request_mass(const StepInput& input);
  void take_mass(const StepInput& input, StepOutput& output);

  ModelRunner& runner_;
  EncodedDocuments* documents_;      // null: no encoder
  LoadedDraftModel* features_;       // keeps the hidden states of all tokens; null: the drafter needs none
  FirstRows* first_;                 // rows of drafted tokens behind the first layers; null: the drafter keeps none
  std::vector<const float*> known_;  // by token of the pass; null: it has none
  MassObserver mass_;
  EvictionObserver evictions_;
  std::vector<ReadRow> reads_;          // the rows that this step reads
  std::vector<int32_t> read_rows_;      // rows of logits that are computed together
  std::vector<int32_t> sampled_;        // rows of a pass in parts, without those behind the last one needed
  std::vector<LoraRows::Run> adapted_;  // adapters of all outputs of a pass in parts
  bool observes_ = false;
};

}  // namespace millrace
