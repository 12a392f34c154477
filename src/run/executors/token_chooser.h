// TokenChooser: turns the rows of logits that a forward pass has computed into tokens and text. The engine calls
// begin() for a new stream, choose_ahead() after each pass, then choose() for each sampled row in order, and flush()
// when the stream ends. Beam search calls likeliest() and write() instead of choose(). Engine thread only, except
// compile() and compiled().
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "flow/step_plan.h"
#include "millrace/constraint.h"
#include "run/executors/executor_stream.h"

namespace millrace {

class Acceptance;

// A chunk of a step, for choose_ahead().
struct ChoiceWork {
  const Sequence* sequence = nullptr;
  ExecutorStream* own = nullptr;
  PlannedChunk chunk;
  bool chooses = false;  // choose() is called for its rows
};

class TokenChooser {
 public:
  virtual ~TokenChooser() = default;

  // Compiles a constraint on the calling thread, which may be any thread. begin() finds the result while a copy of it
  // exists. Errors: user, unsupported, resource, cancelled.
  virtual Result<CompiledConstraint> compile(const Constraint& constraint, const CompileOrder&) const {
    if (constraint.kind == Constraint::Kind::none) return CompiledConstraint();
    return Error::unsupported("constraint: is not supported by this executor");
  }
  // Returns the result of compile() if it is known already; never compiles. Any thread.
  virtual std::optional<Result<CompiledConstraint>> compiled(const Constraint&) const { return std::nullopt; }
  // Prepares a new stream for choose(); stream.sequence.request is set. Errors: as Executor::check().
  virtual Result<void> begin(StreamRef stream) const = 0;

  // After forward() and before choose(): may sample all of the plan's rows now, on several threads. choose() is then
  // called for the same rows: the rows of each stream in order, as long as the acceptance keeps the drafted tokens.
  virtual void choose_ahead(std::span<const ChoiceWork>, const Acceptance&) {}
  // Returns false if computing the stream's next allowed tokens would take too long for this step. The stream then does
  // not choose from that row, which follows a drafted token.
  virtual bool may_choose(StreamRef, int64_t /*row*/) const { return true; }
  // After forward(): samples the next token of a stream from the `row`-th output of the plan's chunks. Token and text
  // are written to `event`. Returns true if the stream ends with the token. Rows after drafted tokens are used only
  // while the draft is right, in order, each after the token before it has joined the stream.
  virtual Result<bool> choose(StreamRef stream, int64_t row, TokenEvent& event) = 0;
  // After forward(), instead of choose(): the `count` likeliest tokens of that row, best first, ties by id.
  virtual void likeliest(int64_t /*row*/, int64_t /*count*/, std::vector<TokenLogprob>& out) { out.clear(); }
  // After forward(): the likeliest token of a row that is not chosen from; ties by id.
  virtual TokenId best_token(int64_t /*row*/) { return 0; }
  // After forward(): the out.size() likeliest tokens of a row, best first; ties by id. At most the vocabulary.
  virtual void best_tokens(int64_t /*row*/, std::span<TokenId> out) { std::ranges::fill(out, 0); }
  virtual std::vector<TokenId> end_tokens() const { return {}; }
  // Adds the text of event.token, which was chosen elsewhere.
  virtual void write(StreamRef /*stream*/, TokenEvent& /*event*/) {}
  // When a stream ends: adds text that was held back.
  virtual void flush(StreamRef stream, TokenEvent& event) = 0;
};

}  // namespace millrace
