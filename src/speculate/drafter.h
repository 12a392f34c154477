// Drafter: proposes tokens that may follow a stream's last one, so that one step can verify several tokens. Each
// drafter is one file under drafters/ and one line in builtin.cc. A drafter belongs to one engine and is called only on
// the engine's thread. Its proposals change the number of steps, but the answer depends on the acceptance rule
// (acceptance.h) alone.
//
// A drafter is a record of parts, each of which does one thing:
//
//   TextDrafter    drafts from a stream's tokens; several of them compete
//   Learner        a text drafter that reads the model's likeliest tokens
//   ModelDrafter   drafts with a model, which an executor loads (run/drafting/models/)
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "flow/sequence.h"
#include "speculate/draft_model.h"

namespace millrace {

// Sizes for which an engine reserves memory; they never change.
struct DraftSizes {
  int64_t longest = 1;       // tokens of the longest draft
  bool trees = false;        // drafts may be trees, of at most kMaxTreeTokens tokens
  int64_t stream_bytes = 0;  // bytes of its memory for one stream
  int64_t shared_bytes = 0;  // bytes of additional memory, for all streams together
  int64_t vocab_bytes = 0;   // bytes of additional memory for each token of the vocabulary
};

class TextDrafter {
 public:
  virtual ~TextDrafter() = default;
  // Fills `out`, which is empty, with up to `most` tokens that may follow the stream's tokens. `most`: at least 1 and
  // at most DraftSizes::longest. If a step has no room for all of them, it runs the first ones. Recorded plans can be
  // replayed only if the result depends on the stream's tokens alone. stream.draft counts the accepted tokens.
  virtual void propose(const Sequence& stream, int64_t most, Draft& out) = 0;
  // Creates the drafter's memory for one stream; null: it needs none. The memory must not allocate later. Called before
  // the stream's first draft.
  virtual std::shared_ptr<DraftMemory> remember() const { return nullptr; }
  // For drafters of trees: called after each step of the stream. `committed`: tokens that the step added to the stream.
  // `probed`: the model's likeliest token behind each probe that ran.
  virtual void observe(const Sequence& /*stream*/, int64_t /*committed*/, std::span<const TokenId> /*probed*/) {}
  // Called before the first draft. `vocab`: number of the model's tokens. Must not fail if check() succeeded.
  virtual void begin(int64_t /*vocab*/) {}
  // Checks that the drafter's files are complete and fit this vocabulary. Called once for each engine; may take long.
  // `tokens`: the texts of the vocabulary; empty: not known.
  virtual Result<void> check(int64_t /*vocab*/, std::span<const std::string> /*tokens*/) const { return {}; }
};

class Learner {
 public:
  virtual ~Learner() = default;
  virtual int64_t learns() const = 0;  // number of likeliest tokens that learn() receives for each row of logits
  // `best`: the likeliest tokens after `token`, best first. `token` is in the stream or in its draft. Called before
  // observe().
  virtual void learn(const Sequence& stream, TokenId token, std::span<const TokenId> best) = 0;
};

// Drafts with a model, for all its streams at once. It is called in every step and sets draft.stored of each stream. A
// draft is a chain, a tree, or several chains side by side (DraftRun).
class ModelDrafter {
 public:
  virtual ~ModelDrafter() = default;
  // Called before the step's pass. For each chunk with drafted tokens: sets the draft's first DraftChunk::drafted
  // tokens. If it sets fewer, it shortens the draft, and the step runs only these.
  virtual void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) = 0;
  // Called after the step's pass, before its tokens are chosen.
  virtual void follow(std::span<const DraftChunk> /*chunks*/, DraftModel& /*model*/) {}
  // See TextDrafter.
  virtual std::shared_ptr<DraftMemory> remember() const { return nullptr; }
  virtual void observe(const Sequence& /*stream*/, int64_t /*committed*/, std::span<const TokenId> /*probed*/) {}
};

// Names the model that a drafter runs. An executor finds the loader by its name and passes it the drafter's options.
struct DraftModelSpec {
  std::string loader = "draft";  // name of a DraftModelLoader (run/drafting/models/loader.h); "draft": a whole model
  OptionValues options = {};     // options of the drafter
};

struct TextPart {
  DraftSizes sizes;
  std::unique_ptr<TextDrafter> drafter;
  Learner* learner = nullptr;  // the drafter as a Learner; null: it does not learn
};

struct ModelPart {
  DraftSizes sizes;
  int64_t depth = 1;  // tokens of the longest branch of its drafts
  int64_t rows = 1;   // maximum number of logits rows that one run draws from
  DraftModelSpec spec;
  std::unique_ptr<ModelDrafter> drafter;
};

struct Drafter {
  // Text drafters, which compete: for each stream, the drafts of one of them are used. Empty: `model` drafts.
  std::vector<TextPart> texts;
  std::optional<ModelPart> model;

  int64_t longest() const;                    // tokens of the longest draft of any part
  bool trees() const;                         // true: a part drafts trees
  int64_t stream_bytes() const;               // bytes of all parts' memory for one stream
  int64_t shared_bytes(int64_t vocab) const;  // bytes of all parts' shared memory, for a model of `vocab` tokens
  int64_t learns() const;                     // maximum of Learner::learns() over the parts; 0: no part learns
  // check() and begin() of all parts. `tokens`: the tokenizer's texts; empty: not known, only their number `vocab`.
  Result<void> check(int64_t vocab, std::span<const std::string> tokens) const;
  void begin(int64_t vocab);
};

// Create a drafter with one part.
std::unique_ptr<Drafter> drafter_of(TextPart part);
std::unique_ptr<Drafter> drafter_of(ModelPart part);
template <std::derived_from<TextDrafter> T>
std::unique_ptr<Drafter> text_drafter(const DraftSizes& sizes, std::unique_ptr<T> drafter) {
  TextPart part{.sizes = sizes, .drafter = nullptr};
  if constexpr (std::derived_from<T, Learner>) part.learner = drafter.get();
  part.drafter = std::move(drafter);
  return drafter_of(std::move(part));
}

using DrafterFactory = Result<std::unique_ptr<Drafter>> (*)(const OptionValues& options);
const Registry<DrafterFactory>& drafters();

// `text` is NAME[:key=value,...]. Errors: user (unknown name or option), corrupt (one of its files).
Result<std::unique_ptr<Drafter>> make_drafter(std::string_view text);

}  // namespace millrace
