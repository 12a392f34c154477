// Drafter: proposes the tokens that may follow a stream's last one, so that one step can verify several of them. One
// file each under drafters/ and one line in builtin.cc. A drafter belongs to one engine and is called only on its
// thread. Its proposals change the number of steps; the answer depends on the acceptance (acceptance.h) alone.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "flow/sequence.h"
#include "speculate/draft_model.h"

namespace millrace {

// Blocks that a drafter leaves out when it runs the engine's own model (run/skip_choice.h), as its options name them.
struct SkipChoice {
  std::string attention, mlp;  // layers: "3+7-9"
  std::string file;            // file of `millrace draft-search`; all three empty: a default
  int64_t first = 0;           // > 0: only the first layers run, and the step's pass continues behind them
};

// The model of a drafter that drafts from the hidden states of the engine's model (run/feature_runner.h).
struct FeatureChoice {
  enum class Kind : uint8_t { medusa, eagle, mtp, kangaroo, pass, longspec };
  Kind kind = Kind::medusa;
  int64_t heads = 0;  // medusa: that are used; pass: look-ahead tokens
  int64_t exit = 0;   // kangaroo: layers of the model before the adapter
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual int64_t longest() const = 0;  // tokens of the longest draft
  // Appends up to `most` tokens, at least 1 and at most longest(), that may follow the stream's tokens. The result must
  // depend on the stream's tokens alone if recorded plans are to be replayed. stream.draft counts the accepted tokens.
  virtual void propose(const Sequence& /*stream*/, int64_t /*most*/, std::vector<TokenId>& /*out*/) {}

  // Creates the drafter's memory of a stream, which may not allocate later; may be null. Called before the stream's
  // first draft.
  virtual std::shared_ptr<DraftMemory> remember(const Sequence& /*stream*/) const { return nullptr; }

  // A drafter of trees, of at most kMaxTreeTokens tokens, has these in place of propose().
  virtual bool trees() const { return false; }
  // Fills `out`, which is empty, with up to `most` tokens; its first ones, where a step has no room for all.
  virtual void propose_tree(const Sequence& stream, int64_t most, Draft& out) { propose(stream, most, out.tokens); }
  virtual int64_t memory_bytes() const { return 0; }  // bytes of its memory of one stream
  // Bytes of its further memory, of all streams together, for a model of `vocab` tokens.
  virtual int64_t shared_bytes(int64_t /*vocab*/) const { return 0; }
  // After a step with a draft of the stream, which has added `committed` tokens to it.
  // `probed`: the model's likeliest token behind each of the probes that ran.
  virtual void observe(const Sequence& /*stream*/, int64_t /*committed*/, std::span<const TokenId> /*probed*/) {}

  // Drafters that compete: each stream's drafts are those of one of them, and the members above apply to each. None: it
  // drafts itself.
  virtual std::span<const std::unique_ptr<Drafter>> members() const { return {}; }

  // For a drafter that learns from the model's likeliest tokens: how many of them it receives for every row of logits.
  virtual int64_t learns() const { return 0; }
  // `best`: the likeliest tokens after `token` in the stream or in its draft, best first. Before observe().
  virtual void learn(const Sequence& /*stream*/, TokenId /*token*/, std::span<const TokenId> /*best*/) {}

  // Before the first draft: the model's tokens. Must not fail where check() has not.
  virtual void begin(int64_t /*vocab*/) {}
  // Checks that its files are whole and fit this vocabulary; called once for each engine, may take long. `tokens`: the
  // vocabulary's texts, if they are known.
  virtual Result<void> check(int64_t /*vocab*/, std::span<const std::string> /*tokens*/) const { return {}; }

  // A drafter with its own model implements these functions instead of propose(). Its drafts are chains or, in a tree,
  // chains side by side (DraftRun). They are called in every step, for all its streams at once, and set draft.stored.
  virtual bool has_model() const { return false; }
  virtual std::string model_path() const { return {}; }  // model that executors load; "": a built-in one
  virtual int64_t depth() const { return longest(); }    // tokens of the longest branch of its trees
  virtual int64_t model_rows() const { return 1; }       // rows of logits that one run draws from, at most
  // Not null: its model is the engine's own without these blocks; model_path() is not used, draft.stored stays kAll.
  virtual const SkipChoice* skips() const { return nullptr; }
  // Not null: its model is not a whole one, but these heads or this layer, from model_path().
  virtual const FeatureChoice* features() const { return nullptr; }
  // Before the step's pass: sets the first `drafted` tokens of the draft of each chunk, of those that have some; or
  // shortens the draft, and the chunk then has as many.
  virtual void propose_all(std::span<const DraftChunk> /*chunks*/, DraftModel& /*model*/) {}
  // Called after the step's pass, before its tokens are chosen.
  virtual void follow(std::span<const DraftChunk> /*chunks*/, DraftModel& /*model*/) {}
};

using DrafterFactory = Result<std::unique_ptr<Drafter>> (*)(const OptionValues& options);
const Registry<DrafterFactory>& drafters();

// `text` is NAME[:key=value,...]. Errors: user (unknown name or option), corrupt (one of its files).
Result<std::unique_ptr<Drafter>> make_drafter(std::string_view text);
// Returns true if it drafts trees; false for "". Errors: as above.
Result<bool> drafts_trees(std::string_view text);
// Its model_rows(); 1 for "". Errors: as above.
Result<int64_t> drafter_model_rows(std::string_view text);
// Returns skips(); null: it leaves nothing out, or `text` is "". Errors: as above.
Result<std::unique_ptr<SkipChoice>> drafter_skips(std::string_view text);
// Returns features(); null: its model is a whole model, it has none, or `text` is "". Errors: as above.
Result<std::unique_ptr<FeatureChoice>> drafter_features(std::string_view text);
// Returns the path of its model, as model_path(); null: it has no separate model, or `text` is "". Errors: as above.
Result<std::unique_ptr<std::string>> drafter_model(std::string_view text);
// Calls its check() for a model of `vocab` tokens, whose tokenizer has `tokens`; those may be none. Errors: as above,
// and those of check().
Result<void> check_drafter(std::string_view text, int64_t vocab, std::span<const std::string> tokens);
// Its longest(), and its memory_bytes() and shared_bytes(); 0 for "". Errors: as above.
Result<int64_t> longest_draft(std::string_view text);
struct DrafterMemory {
  int64_t stream = 0, shared = 0;
};
Result<DrafterMemory> drafter_memory(std::string_view text, int64_t vocab);

}  // namespace millrace
