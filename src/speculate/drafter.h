// Drafter: proposes the tokens that may follow a stream's last one, so that one step can verify several of them. One
// file each under drafters/ and one line in builtin.cc. A drafter belongs to one engine and is called only on its
// thread. Its proposals change the number of steps; the answer depends on the acceptance (acceptance.h) alone.
//
// A drafter is a record of parts, each of which does one thing:
//
//   TextDrafter    drafts from a stream's tokens; several of them compete
//   Learner        a text drafter that reads the model's likeliest tokens
//   ModelDrafter   drafts with a model, which an executor loads (run/draft_models/)
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

// Sizes that an engine reserves for a part of a drafter; they never change.
struct DraftSizes {
  int64_t longest = 1;       // tokens of the longest draft
  bool trees = false;        // drafts may be trees, of at most kMaxTreeTokens tokens
  int64_t stream_bytes = 0;  // bytes of its memory of one stream
  int64_t shared_bytes = 0;  // bytes of its further memory, of all streams together ...
  int64_t vocab_bytes = 0;   // ... and that many more for each token of the vocabulary
};

class TextDrafter {
 public:
  virtual ~TextDrafter() = default;
  // Fills `out`, which is empty, with up to `most` tokens that may follow the stream's tokens; `most`: at least 1 and
  // at most DraftSizes::longest. A step without room for all runs the first ones. The result must depend on the
  // stream's tokens alone if recorded plans are to be replayed. stream.draft counts the accepted tokens.
  virtual void propose(const Sequence& stream, int64_t most, Draft& out) = 0;
  // Creates the drafter's memory of a stream, which may not allocate later; may be null. Called before the stream's
  // first draft.
  virtual std::shared_ptr<DraftMemory> remember() const { return nullptr; }
  // For drafters of trees: called after a step of the stream, which has added `committed` tokens to it.
  // `probed`: the model's likeliest token behind each of the probes that ran.
  virtual void observe(const Sequence& /*stream*/, int64_t /*committed*/, std::span<const TokenId> /*probed*/) {}
  // Before the first draft: the model's tokens. Must not fail where check() has not.
  virtual void begin(int64_t /*vocab*/) {}
  // Checks that its files are whole and fit this vocabulary; called once for each engine, may take long. `tokens`: the
  // vocabulary's texts, if they are known.
  virtual Result<void> check(int64_t /*vocab*/, std::span<const std::string> /*tokens*/) const { return {}; }
};

class Learner {
 public:
  virtual ~Learner() = default;
  virtual int64_t learns() const = 0;  // likeliest tokens that it receives for every row of logits
  // `best`: the likeliest tokens after `token` in the stream or in its draft, best first. Before observe().
  virtual void learn(const Sequence& stream, TokenId token, std::span<const TokenId> best) = 0;
};

// Its drafts are chains or, in a tree, chains side by side (DraftRun). Called in every step, for all its streams at
// once; sets draft.stored.
class ModelDrafter {
 public:
  virtual ~ModelDrafter() = default;
  // Before the step's pass: sets the first `drafted` tokens of the draft of each chunk, of those that have some; or
  // shortens the draft, and the chunk then has as many.
  virtual void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) = 0;
  // Called after the step's pass, before its tokens are chosen.
  virtual void follow(std::span<const DraftChunk> /*chunks*/, DraftModel& /*model*/) {}
  // As those of TextDrafter.
  virtual std::shared_ptr<DraftMemory> remember() const { return nullptr; }
  virtual void observe(const Sequence& /*stream*/, int64_t /*committed*/, std::span<const TokenId> /*probed*/) {}
};

// The model that a drafter runs. An executor finds the loader by its name and passes it the drafter's options.
struct DraftModelSpec {
  std::string loader = "draft";  // name of a DraftModelLoader (run/draft_models/loader.h); "draft": a whole model
  OptionValues options = {};     // options of the drafter
};

struct TextPart {
  DraftSizes sizes;
  std::unique_ptr<TextDrafter> drafter;
  Learner* learner = nullptr;  // the drafter itself; null: it does not learn
};

struct ModelPart {
  DraftSizes sizes;
  int64_t depth = 1;  // tokens of the longest branch of its drafts
  int64_t rows = 1;   // rows of logits that one run draws from, at most
  DraftModelSpec spec;
  std::unique_ptr<ModelDrafter> drafter;
};

struct Drafter {
  // Several compete: each stream's drafts are those of one of them. Empty: `model` drafts.
  std::vector<TextPart> texts;
  std::optional<ModelPart> model;

  int64_t longest() const;                    // tokens of the longest draft of all parts
  bool trees() const;                         // true: a part drafts trees
  int64_t stream_bytes() const;               // bytes of all parts together
  int64_t shared_bytes(int64_t vocab) const;  // ... for a model of `vocab` tokens
  int64_t learns() const;                     // the most that a part learns from a row of logits; 0: none learns
  // Check and begin the parts. `tokens`: the tokenizer's; without them the vocabulary has `vocab` tokens.
  Result<void> check(int64_t vocab, std::span<const std::string> tokens) const;
  void begin(int64_t vocab);
};

// A drafter with one part.
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
